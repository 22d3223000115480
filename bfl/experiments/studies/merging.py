"""Results of several machines put together: what they share has to be equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bfl.errors import ConfigurationError, DataError, RunError
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.studies.folder import STUDY_JSON, STUDY_TOML, StudyFolder, is_begun, is_done
from bfl.experiments.studies.reading import study_in
from bfl.experiments.studies.run_result import (
    RunResult,
    different_numbers,
    digest,
    read_result,
    result_of,
    write_result,
)
from bfl.experiments.studies.same_data import different_data
from bfl.files import write_atomically


@dataclass(frozen=True)
class Merged:
    """What merging has done.

    Attributes:
        new: Where the results come from that are new in the folder, by the run's name.
        sealed: The files in which nothing said whether they had been changed, and which are
            written, as they are, with a digest of their content.
    """

    new: dict[str, Path]
    sealed: tuple[Path, ...]


def merge(into: Path, sources: Sequence[Path]) -> Merged:
    """Copy the results of finished runs into ``into/runs/NAME.json``; nothing if one is refused.

    Files in ``into`` that have no digest of their content yet are written anew, with one. Each
    result keeps the environment that it was made on. Of two results of one run the one with more
    rounds is kept. The folder gets the study's own files from the first source that has them,
    unless it has them already.

    Args:
        into: The folder, new or with results.
        sources: Folders of studies, or of results; none: only what is in the folder.

    Raises:
        ConfigurationError: A source is no folder of results; two results of one run have different
            configurations or numbers, or of one data set other images or labels; the message names
            the files.
        DataError: A result is corrupt.
        RunError: A file cannot be written.
    """
    found: dict[str, RunResult] = {}
    problems: list[str] = []
    of_data: list[tuple[str, RunResult]] = []
    for place in (into, *sources):
        results = list(_results(place))
        if not results and (place is not into or not sources):
            raise ConfigurationError(f"{place} holds no result of a finished run")
        of_data += [(str(result.configuration.get("dataset")), result) for result in results]
        for result in results:
            known = found.get(result.name)
            problem = _conflict(known, result) if known else ""
            if problem:
                problems.append(problem)
            elif known is None or result.number_of_rounds > known.number_of_rounds:
                found[result.name] = result
    problems += different_data(of_data)
    if problems:
        raise ConfigurationError("\n".join(problems))
    folder = StudyFolder(into)
    new, sealed = {}, []
    for name, result in found.items():
        path = folder.result_file(name)
        elsewhere = result.source.resolve() != path.resolve()
        if elsewhere or not result.sealed:
            write_result(path, result)
        if elsewhere:
            new[name] = result.source
        if not result.sealed:
            sealed.append(path)
    _copy_study(into, sources)
    return Merged(new, tuple(sealed))


def _results(place: Path) -> Iterator[RunResult]:
    """Yield the results in a folder: those in files, then those of runs that have left no file."""
    runs = StudyFolder(place).runs
    if not runs.is_dir():
        return
    paths = sorted(runs.iterdir())
    for path in paths:
        if path.suffix == ".json":
            result = read_result(path)
            if result.name != path.stem:
                raise DataError(f"{path} is the result of the run {result.name}")
            yield result
    for path in paths:
        folder = RunFolder(path)
        if path.is_dir() and is_begun(folder) and is_done(folder):
            yield result_of(folder, path.name)


def _conflict(one: RunResult, other: RunResult) -> str:
    """Return why two results cannot be one run's; empty: they can."""
    claimed = f"{one.source} and {other.source} claim to be the same run"
    ones, others = ({**each.configuration, "rounds": 0} for each in (one, other))
    changed = [key for key in {**ones, **others} if ones.get(key) != others.get(key)]
    if changed:
        differing = "; ".join(
            f"{key} is {ones.get(key)!r} and {others.get(key)!r}" for key in changed
        )
        return (
            f"{claimed} and have other configurations (digests {digest(one.configuration)[:12]} "
            f"and {digest(other.configuration)[:12]}): {differing}"
        )
    different = different_numbers(one, other)
    if one.number_of_rounds == other.number_of_rounds and different:
        name, (mine, theirs) = next(iter(different.items()))
        return (
            f"{claimed} and differ in {len(different)} numbers: {name} is {mine!r} and {theirs!r}"
        )
    return ""


def _copy_study(into: Path, sources: Sequence[Path]) -> None:
    """Copy the study's description and its tables of published numbers, if it is not there."""
    source = next((place for place in sources if (place / STUDY_JSON).is_file()), None)
    if source is None or (into / STUDY_JSON).exists():
        return
    study = study_in(StudyFolder(source)).study
    files = [STUDY_JSON, STUDY_TOML]
    if study.published is not None:
        files.append(str(study.published.path.relative_to(study.source.parent)))
    for file in files:
        try:
            (into / file).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(into / file, (source / file).read_bytes())
        except OSError as error:
            raise RunError(f"cannot copy {source / file}: {error.strerror or error}") from error
