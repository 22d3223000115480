"""Opening of studies by file, name or folder; gathering and merging of their runs' results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from bfl.engine.flower.app import own_folder
from bfl.errors import ConfigurationError, DataError, nearest
from bfl.experiments.run.resume import (
    FREE_TO_CHANGE,
    changed_keys,
    completed,
    has_made_something,
)
from bfl.experiments.studies.folder import FAILED, StudyFolder, is_begun, is_done, state
from bfl.experiments.studies.reading import ExtendedFile, read_study, study_of
from bfl.experiments.studies.run_result import RunResult, portable, result_of
from bfl.experiments.studies.scale import Scale
from bfl.experiments.studies.study import Run, Study

OUTPUT = "runs"
"""The default parent of studies' folders."""

RESULTS = Path("docs") / "results"
"""The folder in which a checkout keeps the results of its studies."""

NO_RESULTS = "none"
"""The value in place of a folder that excludes results from outside the study's folder."""


@dataclass(frozen=True)
class StudyResults:
    """Results of a study's runs.

    Attributes:
        finished: The results of finished runs, by name.
        begun: The partial results of unfinished runs, by name.
        states: The states of unfinished runs in words, by name.
    """

    finished: Mapping[str, RunResult]
    begun: Mapping[str, RunResult]
    states: Mapping[str, str]


@dataclass(frozen=True)
class OpenedStudy:
    """A study in its folder."""

    folder: StudyFolder
    study: Study
    wanted: Callable[[Run], bool] = lambda _: True
    places: tuple[Path, ...] = ()

    @cached_property
    def runs(self) -> list[Run]:
        """The selected runs."""
        return [run for run in self.study.runs() if self.wanted(run)]

    @cached_property
    def results(self) -> StudyResults:
        """The results of the selected runs, read once; for the errors see ``gather``."""
        return gather(self)


def open_study(
    path: Path,
    *,
    output: Path = Path(OUTPUT),
    scale: str = "",
    only: Sequence[str] = (),
    results: Sequence[Path] = (),
    trusted: bool = False,
) -> OpenedStudy:
    """Return a study from its folder or its TOML file.

    Args:
        path: The study's folder, its TOML file, or the name of a study of bfl.
        output: The parent of the study's folder, for a file.
        only: Selects the runs whose name contains or matches one of these; empty: all runs.
        results: Folders with further results; empty: the one of the file's checkout.
        trusted: Whether the plugins that a file names are loaded: to look is not to run.

    Raises:
        ConfigurationError: The study, a named run or a folder does not exist.
    """
    if path.suffix == ".toml" or not path.is_dir():
        study = read_study(study_file(path), trusted=trusted).scaled(Scale.parse(scale))
        folder = StudyFolder(output.absolute() / study.folder_name)
    elif scale:
        raise ConfigurationError(f"--scale: the folder {path} has a scale; allowed: a TOML file")
    else:
        folder = StudyFolder(path)
        study = study_in(folder)
    return OpenedStudy(folder, study, _among(only, study.runs()), _places(results, study))


def study_file(path: Path) -> Path:
    """Return the file of a study, or of a study of bfl by its name, such as ``fischer2024/table2``.

    Names are found from any working directory, in an installed bfl and in a checkout.
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
    """Return the predicate of the runs that ``--only`` selects."""

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


def study_in(folder: StudyFolder) -> Study:
    """Return the study that a folder describes, at its scale.

    Raises:
        ConfigurationError: The folder holds none.
        DataError: Its file is corrupt.
    """
    described, path = folder.described(), folder.study_file
    try:
        read = ExtendedFile(path, dict(described["file"]), path.parent)
        study = study_of(read, described["published"], trusted=False)
    except (KeyError, TypeError) as error:
        raise DataError(f"{path} is corrupt: {error!r}") from error
    return study.scaled(Scale(described["scale"]))


def begin(folder: StudyFolder, study: Study, environment: Mapping[str, Any]) -> None:
    """Write a study's description and the environment into its folder.

    The folder can then be read without the study's file.

    Raises:
        RunError: It cannot be written.
    """
    folder.describe(
        {
            "title": study.title,
            "scale": dict(study.scale.amounts),
            "note": study.said,
            "runs": [run.name for run in study.runs()],
            "environment": dict(environment),
            "file": {**study.tables, "name": study.name},
            "published": study.published.text if study.published else None,
        }
    )


# Results ------------------------------------------------------------------------------------------


def gather(
    study: OpenedStudy, of_others: Sequence[RunResult] = (), *, pass_over_damaged: bool = False
) -> StudyResults:
    """Return the results of a study's selected runs; one with fewer rounds counts as begun.

    Args:
        study: The study.
        of_others: Results of other studies, used for runs of the same configuration.
        pass_over_damaged: Whether a run in the study's folder whose files are corrupt counts as
            failed, for a caller that makes the runs and reports it itself.

    Raises:
        ConfigurationError: A result's configuration differs from the study's, two results of one
            run differ, or two results of one data set differ in its images; the message names the
            files.
        DataError: A file is corrupt.
    """
    folder = study.folder
    others = [place for place in study.places if place.resolve() != folder.path.resolve()]
    kept = [place.results() for place in (folder, *map(StudyFolder, others))]
    finished: dict[str, RunResult] = {}
    begun: dict[str, RunResult] = {}
    states: dict[str, str] = {}
    problems: list[str] = []
    unfit: dict[str, list[RunResult]] = {}
    for run in study.runs:
        claimed = [results[run.name] for results in kept if run.name in results]
        claimed += [
            replace(result, name=run.name, made_as="")
            for result in of_others
            if not _changed(result, run)
        ]
        damaged = False
        try:
            own = folder.run(run.name)
            there = is_begun(own) and has_made_something(own)
            claimed += [result_of(own, run.name)] if there else []
        except DataError:
            damaged = True
            if not pass_over_damaged:
                raise
        for result in claimed:
            differing = _changed(result, run)
            shorter = result.number_of_rounds < run.rounds
            if not differing and result.over:
                problems += _contradictions(finished.setdefault(run.name, result), result)
            elif not differing or (shorter and differing.keys() == {"rounds"}):
                begun[run.name] = result
            else:
                unfit.setdefault(_told(differing), []).append(result)
        if run.name not in finished:
            now = FAILED if damaged else state(folder, run.name, run.rounds)
            states[run.name] = now
    _raise_if_any([*_unfit(unfit), *problems, *different_data(finished.values())])
    return StudyResults(finished, begun, states)


def _changed(result: RunResult, run: Run) -> dict[str, tuple[Any, Any]]:
    """Return the keys whose values differ between a result and a run, with both."""
    values = run.configuration.values
    saved, now = portable(result.configuration), portable(values)
    if not (now.keys() - saved.keys()) & run.values.keys():
        # Keys of a newer version that the study does not set follow from the others.
        return changed_keys({**now, **saved}, now)
    # Results do not keep the keys that may change freely, but checks of other keys may need them.
    free = {key: value for key, value in values.items() if key in FREE_TO_CHANGE}
    return changed_keys(saved, {**free, **now})


def _raise_if_any(problems: Sequence[str]) -> None:
    if problems:
        raise ConfigurationError("\n".join(dict.fromkeys(problems)))


def _told(differing: Mapping[str, tuple[Any, Any]]) -> str:
    return "; ".join(f"{key} was {was!r} and is {now!r}" for key, (was, now) in differing.items())


def _unfit(results: Mapping[str, Sequence[RunResult]]) -> Iterable[str]:
    """Yield a message on all results that differ from the study in the same way."""
    for told, alike in results.items():
        others = len({result.name for result in alike}) - 1
        more = f" and {others} more runs" if others else ""
        yield (
            f"{alike[0].source}: {alike[0].name}{more}, made under another configuration: {told}; "
            "remove these results, or give the study another name"
        )


def _contradictions(one: RunResult, other: RunResult) -> list[str]:
    """Return a message on two results of one run that contradict each other; [] if they agree.

    Common metrics are compared to the last bit, and partitions where both results have one.
    """
    pairs: dict[str, tuple[Any, Any]] = {
        name: (value, other.metrics[name])
        for name, value in one.metrics.items()
        if name in other.metrics
    }
    if one.partition and other.partition:
        pairs["partition"] = (one.partition[:12], other.partition[:12])
    differing = {name: both for name, both in pairs.items() if repr(both[0]) != repr(both[1])}
    if not differing:
        return []
    name, (mine, theirs) = next(iter(differing.items()))
    return [
        f"{one.source} and {other.source} claim to have the same run {one.name} and differ in "
        f"{len(differing)} numbers, {name} is {mine!r} and {theirs!r}; remove one of them"
    ]


def different_data(results: Iterable[RunResult]) -> list[str]:
    """Return messages on data sets whose images or labels differ between results."""
    found: dict[tuple[str, str], dict[str, RunResult]] = {}
    for result in results:
        for kind in ("train", "test"):
            if sha256 := result.data.get(kind):
                key = (kind, str(result.configuration["dataset"]))
                found.setdefault(key, {}).setdefault(sha256, result)
    return [
        f"the {kind} images or labels of {dataset} are not the same in all results: "
        + "; ".join(f"{sha256[:12]} in {r.source}, {r.name}" for sha256, r in by_digest.items())
        for (kind, dataset), by_digest in found.items()
        if len(by_digest) > 1
    ]


def merge(into: StudyFolder, sources: Sequence[StudyFolder]) -> dict[str, Path]:
    """Merge the results of finished runs into one folder; if one is refused, nothing is written.

    Of two results of one run, the one with more rounds is kept. The folder gets the description of
    the study that has all runs of the others.

    Args:
        into: The folder, new or with results.
        sources: Folders of studies or of results.

    Returns:
        The sources of the results that are new in the folder, by the run's name.

    Raises:
        ConfigurationError: A source holds no result; two results of one run have different
            configurations or numbers; of two studies neither has all runs of the other.
        DataError: A file is corrupt.
        RunError: The folder cannot be written.
    """
    there = into.results()
    found = dict(there)
    problems: list[str] = []
    unfit: dict[str, list[RunResult]] = {}
    for place in sources:
        results = {**_finished(place), **place.results()}
        if not results:
            raise ConfigurationError(f"{place.path} holds no result of a finished run")
        for name, result in results.items():
            known = found.setdefault(name, result)
            if known is result:
                continue
            if apart := changed_keys(_whole(known), _whole(result)):
                unfit.setdefault(_told(apart), []).append(known)
            elif known.number_of_rounds == result.number_of_rounds:
                problems += _contradictions(known, result)
            elif known.number_of_rounds < result.number_of_rounds:
                found[name] = result
    _raise_if_any([*_unfit(unfit), *problems, *different_data(found.values())])
    studies = {place: place.described() for place in (into, *sources) if place.holds_study()}
    largest = max(studies, key=lambda place: len(studies[place]["runs"]), default=None)
    for place, described in studies.items():
        if largest and (lacking := {*described["runs"]} - {*studies[largest]["runs"]}):
            raise ConfigurationError(
                f"{largest.study_file} and {place.study_file} are not one study that has grown: "
                f"the first has no run {min(lacking)}; give each a folder of its own"
            )
    into.keep(found.values(), compress=True)
    if largest and largest is not into:
        into.describe(studies[largest])
    return {name: r.source for name, r in found.items() if r is not there.get(name)}


def _whole(result: RunResult) -> dict[str, Any]:
    """Return a result's configuration without its rounds, with keys that newer versions have."""
    # Results do not keep round-retries, and private runs allow no value but 0.
    return {**completed(result.configuration, {"round-retries": 0}), "rounds": 0}


def _finished(place: StudyFolder) -> dict[str, RunResult]:
    """Return the results of the finished runs in a study's folder."""
    names = sorted(path.name for path in place.runs.iterdir()) if place.runs.is_dir() else []
    runs = {name: place.run(name) for name in names}
    return {n: result_of(run, n) for n, run in runs.items() if is_begun(run) and is_done(run)}
