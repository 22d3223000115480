"""The results of a study from Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from bfl.experiments.studies.gathering import OUTPUT, open_study
from bfl.experiments.studies.table import StudyTable, study_table


def study(
    path: str | os.PathLike[str],
    *,
    only: Sequence[str] = (),
    scale: str = "",
    output: str | os.PathLike[str] = OUTPUT,
    results: Sequence[str | os.PathLike[str]] = (),
) -> StudyTable:
    """Return a study's results as far as there are any: no run is made.

    Args:
        path: The study's folder, its TOML file, or the name of one of bfl's, such as
            "fischer2024/table2.toml".
        only: The runs whose name contains or matches one of these; none: all.
        scale: The reduction, for a file.
        output: The folder that has the study's folder, for a file.
        results: Folders of further results; by default that of the study's checkout.

    Returns:
        The table: ``frame`` has a row a line, ``by_run`` a row a run.

    Raises:
        ConfigurationError: There is no such study, or a result is not of it.
        DataError: A result is corrupt.
    """
    places = [Path(place) for place in results]
    return study_table(
        open_study(Path(path), output=Path(output), scale=scale, only=only, results=places)
    )
