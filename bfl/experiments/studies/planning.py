"""Preflight of a study: checks before the first run, and detection of repeated computations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from bfl.aggregation.weightings import weightings
from bfl.aggregation.weightings.equal import Equal
from bfl.configuration import Configuration, resolve
from bfl.configuration.configuration import Value
from bfl.data.datasets import dataset_on_this_machine, source_and_location
from bfl.data.datasets.cache import cached_dataset
from bfl.errors import ConfigurationError, DataError
from bfl.evaluation.metrics import metric_names, metrics_by_task
from bfl.experiments.results.identity import digest
from bfl.experiments.run.resume import check_output
from bfl.experiments.run.simulation import named_clients
from bfl.experiments.studies.columns import at_round, metric_of
from bfl.experiments.studies.gathering import OpenedStudy
from bfl.experiments.studies.run_result import RunResult, portable
from bfl.experiments.studies.study import Run, Study

Check = Callable[[Configuration, int], None]
"""Check of a configuration and its data, for a number of clients, before an engine is started."""

Sizes = Callable[[Configuration, int], Sequence[int]]
"""The clients' numbers of examples, from a configuration and the number of clients."""


def plan(
    study: OpenedStudy,
    machine: Mapping[str, Value],
    check: Check,
    *,
    data_may_be_missing: bool = False,
) -> tuple[tuple[Run, ...], dict[str, str]]:
    """Return a study's runs, checked, and messages on data sets that are not on this machine.

    The runs have all keys: also the number of clients, those of this machine and the run's place.

    Args:
        study: The study; the data of runs that are not selected may be missing.
        machine: Keys of this machine for all runs, such as ``data-dir``.
        check: Checks a configuration with its data, and the run's folder.
        data_may_be_missing: Whether checks that need a missing data set are skipped, and no data
            set is downloaded.

    Raises:
        ConfigurationError: Some runs are refused. The message has one line for each reason, with
            the affected runs.
    """
    runs, wanted = study.study.runs(), study.wanted
    reasons = _Reasons(len(runs))
    sound: list[Run] = []
    for run in runs:
        with reasons.of(run.name):
            values: dict[str, Any] = {**run.values, **machine, "name": run.name, "resume": True}
            values["output-dir"] = str(study.folder.runs)
            values["clients"] = run.values.get("clients") or run.configuration.keys.clients
            complete = replace(run, values=values)
            source_and_location(complete.configuration.keys.dataset)
            sound.append(complete)
    reasons.raise_if_any()
    sound = list(map(_with_clients, sound))
    missing = _missing_data(filter(wanted, sound))
    # Grouped by data set, as a process caches only two.
    for data in dict.fromkeys(map(_data, sound)):
        group = [each for each in sound if _data(each) == data]
        asked = [each for each in group if wanted(each)]
        if data_may_be_missing and data in missing:
            asked = []
        with reasons.of(*(each.name for each in asked)):
            if asked:
                keys = resolve(asked[0].values).keys
                cached_dataset(keys.dataset, keys.data_dir, keys.reading)
            for each in group:
                with reasons.of(each.name):
                    if each in asked:
                        check(resolve(each.values), each.configuration.keys.clients)
                    elif there := _if_there(each):
                        check_output(there)
    reasons.raise_if_any()
    return tuple(sound), {dataset: text for (dataset, _), text in missing.items()}


class _Reasons:
    """Reasons why runs are refused, each once with the affected runs.

    Reasons that differ in the run's name alone, such as in its folder's, are one.
    """

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._names: dict[str, list[str]] = {}
        self._first: dict[str, str] = {}

    @contextmanager
    def of(self, *runs: str) -> Iterator[None]:
        """Record a refusal inside for some runs, instead of raising it."""
        try:
            yield
        except (ConfigurationError, DataError) as error:
            for line in str(error).splitlines():
                alike = line.replace(f"/{runs[0]} ", "/ ") if runs else line
                first = self._first.setdefault(alike, line)
                self._names.setdefault(first, []).extend(runs)

    def raise_if_any(self) -> None:
        """Raise all recorded reasons as one error, if there are any."""
        told = []
        for reason, names in self._names.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            which = "all runs" if len(names) == self._runs > 1 else f"run {names[0]}{more}"
            told.append(f"{reason} ({which})")
        if told:
            raise ConfigurationError("\n".join(told))


def _data(run: Run) -> tuple[str, str]:
    """Return a run's data set and its key ``data-dir``."""
    return run.configuration.keys.dataset, run.configuration.keys.data_dir


def _with_clients(run: Run) -> Run:
    """Return a run with the number of clients that its partition finds in the data, if it does."""
    if not run.configuration.keys.clients:
        with suppress(ConfigurationError, DataError):  # which the checks that follow raise
            clients = named_clients(resolve(run.values))
            return replace(run, values={**run.values, "clients": clients})
    return run


def _if_there(run: Run) -> Configuration | None:
    """Return a run's configuration with the data's path; None where they are missing."""
    with suppress(ConfigurationError):
        return resolve(run.values)
    return None


def _missing_data(runs: Iterable[Run]) -> dict[tuple[str, str], str]:
    """Return messages on data sets that are not on this machine."""
    missing = {}
    for data in dict.fromkeys(map(_data, runs)):
        dataset, data_dir = data
        try:
            here = dataset_on_this_machine(dataset, data_dir)
            resolve({"dataset": dataset, "data-dir": data_dir})
        except ConfigurationError as error:
            missing[data] = str(error)
            continue
        if not here:
            looked = f"not in {Path(data_dir).expanduser()}" if data_dir else "no data-dir is given"
            missing[data] = f"dataset '{dataset}': {looked}; it comes from the Hugging Face hub"
    return missing


def check_columns(study: Study, runs: Sequence[Run]) -> None:
    """Check that runs have the columns' metrics, and evaluate the rounds that columns name.

    Args:
        study: The study; if its rounds are reduced, a round's column may stay empty.

    Raises:
        ConfigurationError: No run's task has a metric, or a run does not evaluate a named round.
    """
    by_task = metrics_by_task()
    tasks = sorted({run.configuration.keys.task for run in runs})
    allowed = {name for task in tasks for name in by_task[task]}
    for column in study.columns:
        if (name := metric_of(column.metric)) in metric_names() and name not in allowed:
            raise ConfigurationError(
                f"columns: metric is '{column.metric}', and no run of task "
                f"'{' or '.join(tasks)}' has '{name}'; allowed: {', '.join(sorted(allowed))}, and "
                f"what is made of these ({study.source})"
            )
    asked = {c.metric: found[1] for c in study.columns if (found := at_round(c.metric))}
    for run in () if "rounds" in study.scale.amounts else runs:
        keys = run.configuration.keys
        for metric, number in asked.items():
            if number > keys.rounds or not keys.evaluate_every or number % keys.evaluate_every:
                raise ConfigurationError(
                    f"columns: metric is '{metric}', and {run.name} does not evaluate round "
                    f"{number}; allowed: a multiple of evaluate-every ({keys.evaluate_every}) up "
                    f"to rounds ({keys.rounds}) ({study.source})"
                )


# Runs of one computation -------------------------------------------------------------------------


def same_runs(
    runs: Sequence[Run], sizes: Sizes, wanted: Collection[str] | None = None
) -> dict[str, str]:
    """Return the runs that repeat an earlier run's computation, with the earliest one's name.

    Args:
        runs: All runs of the study, so that the earliest run does not depend on a selection.
        sizes: Returns the clients' numbers of examples.
        wanted: The names of the selected runs, whose data are on this machine; only runs with the
            computation of one of them are looked at. None: all.
    """
    alike = {run.name: _without_weighting(run.configuration) for run in runs}
    asked = {key for name, key in alike.items() if wanted is None or name in wanted}
    several = {key for key, count in Counter(alike.values()).items() if count > 1} & asked
    first: dict[str, str] = {}
    for run in (run for run in runs if alike[run.name] in several):
        counts: Sequence[int] = ()
        with suppress(ConfigurationError, DataError):
            if run.configuration.weighting.counts_only:
                counts = sizes(resolve(run.values), run.configuration.keys.clients)
        alike[run.name] = computation(run.configuration, counts)
        first.setdefault(alike[run.name], run.name)
    same = {run.name: first.get(alike[run.name], run.name) for run in runs}
    return {name: known for name, known in same.items() if name != known}


def _without_weighting(configuration: Configuration, **put: Any) -> str:
    """Return a digest of a configuration without its weighting."""
    values = portable(configuration.values)
    for setting in (weightings.kind, *configuration.weighting.model_dump(by_alias=True)):
        values.pop(setting, None)
    return digest({**values, **put})


def computation(configuration: Configuration, counts: Sequence[int]) -> str:
    """Return a digest that is the same for configurations of one computation.

    A weighting by numbers of examples alone counts as equal weights if all clients have equally
    many. Its weights must be those of equal weights, bit for bit, for every number of participants.

    Args:
        counts: The clients' numbers of examples; empty: unknown.
    """
    weighting, equal = configuration.weighting, Equal()
    if len(set(counts)) == 1 and weighting.counts_only:
        parts = [counts[:number] for number in range(1, len(counts) + 1)]
        if all(
            weighting.weigh_counts(part).tobytes() == equal.weigh_counts(part).tobytes()
            for part in parts
        ):
            return _without_weighting(configuration, **{weightings.kind: Equal.name})
    return digest(portable(configuration.values))


def taken_from(
    runs: Sequence[Run], same: Mapping[str, str], finished: Mapping[str, RunResult]
) -> dict[str, str]:
    """Return the runs that need not be made, with the name of the run whose result they get.

    That is a finished run, of this or an earlier call; without one, the first of the runs.

    Args:
        runs: The runs to make in this call.
        same: See ``same_runs``.
        finished: The existing results, by the run's name.
    """
    source: dict[str, str] = {}
    for name in (*finished, *(run.name for run in runs)):
        source.setdefault(same.get(name, name), name)
    taken = {run.name: source[same.get(run.name, run.name)] for run in runs}
    own = {name for name, result in finished.items() if not result.made_as}
    return {name: other for name, other in taken.items() if name != other and name not in own}


def as_run(result: RunResult, run: Run) -> RunResult:
    """Return a result as that of another run, which has the same computation."""
    made_as = result.made_as or result.name
    return replace(
        result,
        name=run.name,
        configuration=portable(run.configuration.values),
        # A copy that returns to its original run is no longer a copy.
        made_as="" if made_as == run.name else made_as,
    )
