"""What a study's runs have given, gathered from its folder and from files of results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from bfl.configuration import Configuration, resolve
from bfl.errors import ConfigurationError, DataError
from bfl.experiments.run.resume import FREE_TO_CHANGE, changed_keys
from bfl.experiments.studies.contradictions import different_numbers, untrue_copies
from bfl.experiments.studies.folder import FAILED, StudyFolder, is_begun, state
from bfl.experiments.studies.run_result import (
    RunResult,
    digest,
    portable,
    read_result,
    result_of,
)
from bfl.experiments.studies.same_data import different_data
from bfl.experiments.studies.study import Run

DEFAULT_CLIENTS = 10
"""The number of clients of a run whose study does not say: that of ``flower-simulation``."""

RESULTS = Path("docs") / "results"
"""Where a checkout keeps the results of its studies."""


@dataclass(frozen=True)
class StudyResults:
    """What a study's runs have given.

    Attributes:
        finished: The results of the runs that are over, by name.
        begun: Those of the runs that are not, as far as they have come.
        states: Where each run stands that is not over, in words.
    """

    finished: Mapping[str, RunResult]
    begun: Mapping[str, RunResult]
    states: Mapping[str, str]

    def curves(self, name: str) -> RunResult | None:
        """Return a run's result, or what there is of it."""
        return self.finished.get(name) or self.begun.get(name)


def values_of(run: Run) -> dict[str, Any]:
    """Return the keys of a run, with a number of clients where its study does not say one."""
    return {**run.values, "clients": run.values.get("clients") or DEFAULT_CLIENTS}


def gather(
    folder: StudyFolder,
    runs: Iterable[Run],
    places: Sequence[Path] = (),
    wanted: Callable[[Run], bool] = lambda _: True,
    of_others: Sequence[RunResult] = (),
    *,
    pass_over_damaged: bool = False,
) -> StudyResults:
    """Return what the runs of a study have given.

    A result of fewer rounds than the study has is that of a run that is not over. Where learning
    rates go by shares of the rounds it is that of another run, and passed over.

    Args:
        folder: The study's folder.
        runs: The study's runs.
        places: Other folders with ``runs/NAME.json``.
        wanted: Which runs are looked for.
        of_others: Results of other studies, which are a run's where the configuration is the same.
        pass_over_damaged: Whether a run of which a file in the study's folder is corrupt has what
            sound files say, or nothing: for who makes runs, and finds it again.

    Raises:
        ConfigurationError: A result has another configuration than the study has now, or two claim
            one run with different numbers, also of the rounds that both have, or one computation,
            or are of one data set and were made with other images or labels; the message names the
            files.
        DataError: A file is corrupt, and is not passed over.
    """
    finished: dict[str, RunResult] = {}
    begun: dict[str, RunResult] = {}
    states: dict[str, str] = {}
    problems: list[str] = []
    of_data: list[tuple[str, RunResult]] = []
    for run in filter(wanted, runs):
        configuration = resolve(values_of(run), check_data=False)
        found = []
        same = (result for result in of_others if not _changed(result, configuration))
        renamed = (replace(result, name=run.name, made_as="") for result in same)
        claimed, sound = _claims(folder, run.name, places, pass_over_damaged)
        for result in chain(claimed, renamed):
            if _is_shorter_run(result, configuration):
                continue
            if text := unfit(result, configuration):
                problems.append(text)
            else:
                found.append(result)
        of_data += [(configuration.keys.dataset, result) for result in found]
        rounds = configuration.keys.rounds
        whole = [r for r in found if r.over and r.number_of_rounds == rounds]
        over = (result for result in found if result.over)
        problems += _contradictions(sorted(over, key=lambda r: r.number_of_rounds, reverse=True))
        if whole:
            # They agree: the first that knows which clients it has gone on without.
            finished[run.name] = min(whole, key=lambda result: result.lost is None)
            continue
        own = folder.run(run.name)
        if not sound:
            states[run.name] = FAILED  # if nobody has said so yet, who makes it will
            continue
        if is_begun(own) and not _is_shorter_run(so_far := result_of(own, run.name), configuration):
            begun[run.name] = so_far
        states[run.name] = state(folder, run.name, own, rounds)
    problems += different_data(of_data)
    problems += untrue_copies(finished.values())
    if problems:
        raise ConfigurationError("\n".join(dict.fromkeys(problems)))
    return StudyResults(finished, begun, states)


def _claims(
    folder: StudyFolder, name: str, places: Sequence[Path], pass_over_damaged: bool
) -> tuple[list[RunResult], bool]:
    """Return all that claims to be a run's result, the study's own files first, and whether all is.

    Only what lies in the study's own folder is passed over: nobody looks again at other places.
    """
    own = folder.run(name)
    mine = folder.result_file(name).resolve()
    files = [mine, *(StudyFolder(place).result_file(name).resolve() for place in places)]
    readers: dict[Path, Callable[[], RunResult]] = {
        path: partial(_result_in, path, name) for path in files if path.is_file()
    }
    if is_begun(own):
        readers[own.path] = partial(result_of, own, name)
    claimed, sound = [], True
    for path, read in readers.items():
        try:
            claimed.append(read())
        except DataError:
            if not (pass_over_damaged and path in (mine, own.path)):
                raise
            sound = False
    return claimed, sound


def _result_in(path: Path, name: str) -> RunResult:
    """Return a run's result in a file of results.

    Raises:
        DataError: It is corrupt, or another run's.
    """
    result = read_result(path)
    if result.name != name:
        raise DataError(f"{path} is the result of the run {result.name}, not of {name}")
    return result


def unfit(result: RunResult, configuration: Configuration) -> str:
    """Return why a result is not that of a configuration; empty: it is, or of its first rounds."""
    now = portable(configuration.values)
    changed = _changed(result, configuration)
    shorter = result.number_of_rounds < configuration.keys.rounds
    if shorter and not configuration.schedule.depends_on_rounds():
        # Nothing else in a round depends on how many there are to be.
        del changed["rounds"]
    if not changed:
        return ""
    differing = "; ".join(f"{k} was {was!r} and is {is_!r}" for k, (was, is_) in changed.items())
    return (
        f"{result.source} is a run of another configuration (digest "
        f"{digest(result.configuration)[:12]}, the study's is {digest(now)[:12]}): {differing}"
    )


def _changed(result: RunResult, configuration: Configuration) -> dict[str, tuple[Any, Any]]:
    """Return the keys in which a result's configuration is another one, with both values."""
    # Other keys may need those that may change, which results do not keep.
    free = {key: value for key, value in configuration.values.items() if key in FREE_TO_CHANGE}
    now = {**free, **portable(configuration.values)}
    return changed_keys(portable(result.configuration), now)


def _is_shorter_run(result: RunResult, configuration: Configuration) -> bool:
    """Return whether a result has fewer rounds, and in these other learning rates."""
    return (
        configuration.schedule.depends_on_rounds()
        and result.number_of_rounds < configuration.keys.rounds
        and _changed(result, configuration).keys() == {"rounds"}
    )


def _contradictions(results: Sequence[RunResult]) -> list[str]:
    """Return which results claim to be one run's and have different numbers."""
    problems = []
    for other in results[1:]:
        different = different_numbers(results[0], other)
        if different:
            name, (one, two) = next(iter(different.items()))
            problems.append(
                f"{results[0].source} and {other.source} claim to be the same run and differ in "
                f"{len(different)} numbers, {name} is {one!r} and {two!r}; remove one of them"
            )
    return problems


def results_in(folders: Iterable[StudyFolder]) -> tuple[RunResult, ...]:
    """Return the results that lie in the folders of studies; none of folders that are not there.

    Raises:
        DataError: A file is corrupt.
    """
    files = (path for folder in folders for path in sorted(folder.runs.glob("*.json")))
    return tuple(read_result(path) for path in dict.fromkeys(file.resolve() for file in files))


def results_beside(file: Path, folder_name: str) -> tuple[Path, ...]:
    """Return where the checkout that a study's file lies in keeps results, if it does.

    That is ``docs/results/NAME`` of the nearest folder above the file that has ``docs/results``.
    """
    for parent in file.resolve().parents:
        if (parent / RESULTS).is_dir():
            return (parent / RESULTS / folder_name,)
    return ()
