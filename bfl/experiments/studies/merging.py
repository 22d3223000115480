"""Results of several machines put together: what they share has to be equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bfl.configuration import resolve
from bfl.errors import ConfigurationError, DataError, RunError
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.resume import completed
from bfl.experiments.studies.contradictions import different_numbers, untrue_copies
from bfl.experiments.studies.folder import STUDY_JSON, STUDY_TOML, StudyFolder, is_begun, is_done
from bfl.experiments.studies.gathering import unfit
from bfl.experiments.studies.growing import DescribedStudy, configuration_of, largest_study
from bfl.experiments.studies.reading import study_in
from bfl.experiments.studies.run_result import (
    RunResult,
    digest,
    read_result,
    result_of,
    write_result,
)
from bfl.experiments.studies.same_data import different_data
from bfl.files import write_atomically
from bfl.plugins import PluginPolicy

UNREPEATED = {"round-retries": 0}
"""A key that results do not keep, at what goes with all others: private runs allow nothing else."""


@dataclass(frozen=True)
class Merged:
    """What merging has done.

    Attributes:
        new: Where the results come from that are new in the folder, by the run's name.
        sealed: The files in which nothing said whether they had been changed, and which are
            written, as they are, with a digest of their content.
        unlisted: The files of results of which the folder's study has no run.
        study: The study's description in the folder; None: it has none.
        grown_from: Where that comes from, if it is new in the folder.
    """

    new: dict[str, Path]
    sealed: tuple[Path, ...]
    unlisted: tuple[Path, ...]
    study: Path | None
    grown_from: Path | None


def merge(into: Path, sources: Sequence[Path]) -> Merged:
    """Copy the results of finished runs into ``into/runs/NAME.json``; nothing if one is refused.

    Files in ``into`` that have no digest of their content yet are written anew, with one. Each
    result keeps the environment that it was made on. Of two results of one run the one with more
    rounds is kept, and of as many the one that knows how many clients it has gone on without. The
    folder gets the study's own files from the source whose study contains those of the others and
    of the folder (see ``largest_study``): a study grows by runs and by rounds.

    Args:
        into: The folder, new or with results.
        sources: Folders of studies, or of results; none: only what is in the folder.

    Raises:
        ConfigurationError: A source is no folder of results; two results of one run have different
            configurations or numbers, also of one computation, or of one data set other images or
            labels; of two studies neither contains the other, or a result is not that of the
            study's run; the message names the files.
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
            elif known is None or _knows(result) > _knows(known):
                found[result.name] = result
    problems += different_data(of_data)
    problems += untrue_copies(found.values())
    study = largest_study((into, *sources))
    if study and not problems:
        problems += _unfit(study, found)
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
    grown_from = _copy_study(study, into) if study and study.place != into else None
    return Merged(
        new,
        tuple(sealed),
        tuple(folder.result_file(name) for name in found if study and name not in study.runs),
        folder.path / STUDY_JSON if study else None,
        grown_from,
    )


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


def _knows(result: RunResult) -> tuple[int, bool]:
    """Return how much a result knows of its run; of two that agree the greater one is kept."""
    return result.number_of_rounds, result.lost is not None


def _conflict(one: RunResult, other: RunResult) -> str:
    """Return why two results cannot be one run's; empty: they can."""
    claimed = f"{one.source} and {other.source} claim to be the same run"
    ones, others = _comparable(one), _comparable(other)
    known = {**one.configuration, **other.configuration}
    changed = [key for key in known if ones.get(key) != others.get(key)]
    if changed:
        differing = "; ".join(
            f"{key} is {ones.get(key)!r} and {others.get(key)!r}" for key in changed
        )
        return (
            f"{claimed} and have other configurations (digests {digest(one.configuration)[:12]} "
            f"and {digest(other.configuration)[:12]}): {differing}"
        )
    different = different_numbers(one, other)
    if different:
        name, (mine, theirs) = next(iter(different.items()))
        return (
            f"{claimed} and differ in {len(different)} numbers: {name} is {mine!r} and {theirs!r}"
        )
    return ""


def _comparable(result: RunResult) -> dict[str, Any]:
    """Return a result's configuration, with newer keys as its run resolves to.

    Without its rounds, unless the learning rates of the first ones depend on how many there are.
    """
    values = dict(completed(result.configuration, UNREPEATED))
    with suppress(ConfigurationError):
        policy = PluginPolicy(named_by="a merged result")
        resolved = resolve({**UNREPEATED, **values}, check_data=False, policy=policy)
        if resolved.schedule.depends_on_rounds():
            return values
    return {**values, "rounds": 0}


def _unfit(study: DescribedStudy, found: Mapping[str, RunResult]) -> list[str]:
    """Return which results are not those of the study's runs, so that no table has them."""
    return [
        f"{text} (the study is that of {study.file})"
        for name, result in found.items()
        if name in study.runs and (text := unfit(result, configuration_of(study.runs[name])))
    ]


def _copy_study(described: DescribedStudy, into: Path) -> Path:
    """Copy a study's description and its table of published numbers; return what of."""
    source = described.place
    study = study_in(StudyFolder(source)).study
    files = [STUDY_TOML, STUDY_JSON]
    if study.published is not None:
        files.append(study.published.name)
    for file in files:
        try:
            (into / file).parent.mkdir(parents=True, exist_ok=True)
            write_atomically(into / file, (source / file).read_bytes())
        except OSError as error:
            raise RunError(f"cannot copy {source / file}: {error.strerror or error}") from error
    return described.file
