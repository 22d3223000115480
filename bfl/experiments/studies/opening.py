"""A study found, by its file, its name or its folder; and which of its runs count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from bfl.engine.flower.app import own_folder
from bfl.errors import ConfigurationError, nearest
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.gathering import OpenedStudy
from bfl.experiments.studies.reading import read_study, study_in
from bfl.experiments.studies.scale import Scale
from bfl.experiments.studies.study import Run, Study

OUTPUT = "runs"
"""The folder that gets studies' folders."""

RESULTS = Path("docs") / "results"
"""The folder in which a checkout keeps the results of its studies."""

NO_RESULTS = "none"
"""In place of a folder: results of the study's own folder alone."""


def open_study(
    path: Path,
    *,
    output: Path = Path(OUTPUT),
    scale: str = "",
    only: Sequence[str] = (),
    results: Sequence[Path] = (),
) -> OpenedStudy:
    """Return a study by its folder, or by the file that its folder is made from.

    Args:
        path: The study's folder, its TOML file, or the name of one of this project's.
        output: The folder of the studies' folders, for a file.
        scale: The reduction, for a file.
        only: The runs whose name contains or matches one of these; none: all.
        results: Folders with further results; none: that of the file's checkout.

    Raises:
        ConfigurationError: There is no such study, no run of such a name, or no such folder.
    """
    if path.suffix == ".toml" or not path.is_dir():
        study = read_study(study_file(path)).scaled(Scale.parse(scale))
        folder = StudyFolder(output.absolute() / study.folder_name)
    elif scale:
        raise ConfigurationError(f"--scale: {path} has a scale already; it goes with a TOML file")
    else:
        folder = StudyFolder(path)
        study = study_in(folder)
    return OpenedStudy(folder, study, _among(only, study.runs()), _places(results, study))


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


def results_next_to(file: Path, folder_name: str) -> tuple[Path, ...]:
    """Return ``docs/results/NAME`` of the nearest folder above a file that has ``docs/results``."""
    checkouts = (parent for parent in file.resolve().parents if (parent / RESULTS).is_dir())
    return tuple(parent / RESULTS / folder_name for parent in list(checkouts)[:1])


def _places(results: Sequence[Path], study: Study) -> tuple[Path, ...]:
    if not results:
        return results_next_to(study.source, study.folder_name)
    named = tuple(place for place in results if str(place) != NO_RESULTS)
    for place in named:
        if not place.is_dir():
            raise ConfigurationError(f"--results: there is no folder {place}")
    return named


def _among(patterns: Sequence[str], runs: Sequence[Run]) -> Callable[[Run], bool]:
    """Return what says whether a run is among those that ``--only`` names."""

    def matches(name: str, pattern: str) -> bool:
        return fnmatchcase(name, pattern) if set(pattern) & set("*?[") else pattern in name

    names = [run.name for run in runs]
    for pattern in patterns:
        if not any(matches(name, pattern) for name in names):
            raise ConfigurationError(
                f"--only: no run's name contains or matches {pattern!r}; a name is for instance "
                f"'{nearest(pattern, names) or names[0]}'"
            )
    return lambda run: not patterns or any(matches(run.name, p) for p in patterns)
