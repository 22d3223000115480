"""The results of a study from Python."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from bfl.errors import ConfigurationError
from bfl.experiments.studies.results import OUTPUT, open_study
from bfl.experiments.studies.runner import make_study
from bfl.experiments.studies.table import StudyTable, study_table
from bfl.plugins import load_plugins


def study(
    path: str | os.PathLike[str],
    *,
    only: Sequence[str] = (),
    scale: str = "",
    output: str | os.PathLike[str] = OUTPUT,
    results: Sequence[str | os.PathLike[str]] = (),
    run: bool = False,
    backend: str = "ray",
    data_dir: str = "",
    plugins: str = "",
) -> StudyTable:
    """Return a study's results as far as there are any; with ``run``, make the missing ones first.

    Args:
        path: The study's folder, its TOML file, or the name of one of bfl's, such as
            "fischer2024/table2.toml".
        only: The runs whose name contains or matches one of these; none: all.
        scale: The reduction, for a file.
        output: The folder that has the study's folder, for a file.
        results: Folders of further results; by default that of the study's checkout.
        run: Whether the runs that are left are made, for a file.
        backend: See ``bfl.run``.
        data_dir: The folder of the data sets' archives on this machine.
        plugins: The plugins that the study is from, which may run their code here, as in the key
            ``plugins``; with ``run`` a file names its own.

    Returns:
        The table: ``lines`` has a row a line; ``results`` has ``frame``, a row a run, and
        ``curves``.

    Raises:
        ConfigurationError: There is no such study, or a result is not of it.
        DataError: A result is corrupt.
        RunError: Runs have failed; the others are made.
    """
    load_plugins(plugins)
    places = [Path(place) for place in results]
    opened = open_study(Path(path), output=Path(output), scale=scale, only=only, results=places)
    if run:
        if Path(path).is_dir():
            raise ConfigurationError(f"{path} is a folder; allowed with run: a study's TOML file")
        machine = {"data-dir": data_dir} if data_dir else {}
        make_study(opened, machine, backend=("--backend", backend))
        opened = open_study(Path(path), output=Path(output), scale=scale, only=only, results=places)
    return study_table(opened)
