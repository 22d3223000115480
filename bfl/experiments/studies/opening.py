"""A study found: by its file, its name or its folder; which of its runs, and where results are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from bfl.engine.flower.app import own_folder
from bfl.errors import ConfigurationError, nearest
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.gathering import results_next_to
from bfl.experiments.studies.reading import read_study, study_in
from bfl.experiments.studies.scale import Scale, ScaledStudy
from bfl.experiments.studies.study import Run

OUTPUT = "runs"
"""The folder that gets studies' folders."""

NO_RESULTS = "none"
"""In place of a folder: results of the study's own folder alone."""


def opened(path: Path, output: Path, scale: str) -> tuple[StudyFolder, ScaledStudy]:
    """Return a study and its folder, by the folder or by the file that it was made from.

    Args:
        path: The study's folder, or its TOML file.
        output: The folder of the studies' folders, for a file.
        scale: The reduction, for a file.

    Raises:
        ConfigurationError: There is no such study.
    """
    if path.suffix == ".toml":
        scaled = Scale.parse(scale).apply(read_study(study_file(path)))
        return StudyFolder(output.absolute() / scaled.folder_name), scaled
    if scale:
        raise ConfigurationError(f"--scale: {path} has a scale already; it goes with a TOML file")
    folder = StudyFolder(path)
    return folder, study_in(folder)


def study_file(path: Path) -> Path:
    """Return the file of a study, which may also be one of this project's: ``fischer2024/table2``.

    Those are found from any folder, whether this project is installed or checked out.
    """
    if path.exists() or path.is_absolute():
        return path
    for place in (own_folder(), own_folder() / "configs"):
        for found in (place / path, place / f"{path}.toml"):
            if found.is_file():
                return found
    return path


def places_of(results: Sequence[Path], scaled: ScaledStudy) -> tuple[Path, ...]:
    """Return the folders with results besides the study's own; the checkout's if none is named.

    Raises:
        ConfigurationError: A folder that is named does not exist.
    """
    if not results:
        return results_next_to(scaled.study.source, scaled.folder_name)
    named = tuple(place for place in results if str(place) != NO_RESULTS)
    for place in named:
        if not place.is_dir():
            raise ConfigurationError(f"--results: there is no folder {place}")
    return named


def only(patterns: Sequence[str], runs: Sequence[Run]) -> Callable[[Run], bool]:
    """Return what says whether a run is among those that ``--only`` names; without any, all are.

    Raises:
        ConfigurationError: A pattern names no run.
    """
    for pattern in patterns:
        if not any(_matches(run.name, pattern) for run in runs):
            names = [run.name for run in runs]
            guess = nearest(pattern, names) or names[0]
            raise ConfigurationError(
                f"--only: no run's name contains or matches {pattern!r}; a name is for instance "
                f"'{guess}'"
            )
    return lambda run: not patterns or any(_matches(run.name, p) for p in patterns)


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) if set(pattern) & set("*?[") else pattern in name
