"""Runs of a study that resolve to one computation: they are made once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bfl.aggregation.weightings import Weighting, weightings
from bfl.aggregation.weightings.equal import Equal
from bfl.configuration import Configuration
from bfl.errors import ConfigurationError, DataError
from bfl.experiments.studies.checks import PlannedRun, with_absolute_data
from bfl.experiments.studies.run_result import RunResult, digest, portable

Sizes = Callable[[Configuration, int], Sequence[int]]
"""What tells the clients' numbers of examples from a configuration and the number of clients."""


def computation(configuration: Configuration, sizes: Sequence[int]) -> str:
    """Return a digest that is the same for configurations of one computation.

    A weighting that goes by the clients' numbers of examples and nothing else is that of equal
    weights where all have equally many and it gives the same weights to the last bit, however many
    of them take part.

    Args:
        configuration: The configuration.
        sizes: The clients' numbers of examples; empty: not known.
    """
    values: dict[str, Any] = portable(configuration.values)
    if len(set(sizes)) == 1 and _weighs_equally(configuration.weighting, sizes):
        for setting in configuration.weighting.model_dump(by_alias=True):
            values.pop(setting, None)
        values[weightings.kind] = Equal.name
    return digest(values)


def _weighs_equally(weighting: Weighting, sizes: Sequence[int]) -> bool:
    if not weighting.counts_only:
        return False
    return all(
        weighting.weigh_counts(sizes[:count]).tobytes()
        == Equal().weigh_counts(sizes[:count]).tobytes()
        for count in range(1, len(sizes) + 1)
    )


def same_runs(
    runs: Sequence[PlannedRun], sizes: Sizes, wanted: Collection[str] | None = None
) -> dict[str, str]:
    """Return which runs are one computation, by name: the earliest run that is the same.

    Args:
        runs: All runs of the study, so that it is the same whichever of them are made in one call.
        sizes: Tells the clients' numbers of examples.
        wanted: The names of the runs that are asked about, whose data are on this machine; those
            that are no computation of theirs are left out. None: all.
    """
    alike = {run.name: _but_for_the_weighting(run) for run in runs}
    asked = {key for name, key in alike.items() if wanted is None or name in wanted}
    several = {key for key, count in Counter(alike.values()).items() if count > 1} & asked
    first: dict[str, str] = {}
    same = {}
    for run in (run for run in runs if alike[run.name] in several):
        known = first.setdefault(_of(run, sizes), run.name)
        if known != run.name:
            same[run.name] = known
    return same


def taken_from(
    runs: Sequence[PlannedRun], same: Mapping[str, str], finished: Mapping[str, RunResult]
) -> dict[str, str]:
    """Return which of some runs need not be made, by name: the run whose result they get.

    That is one which is finished, also in an earlier call or elsewhere; else the first of the runs.

    Args:
        runs: The runs that are to be made in this call.
        same: See ``same_runs``.
        finished: The results that there are, by the run's name.
    """
    source: dict[str, str] = {}
    for name in (*finished, *(run.name for run in runs)):
        source.setdefault(same.get(name, name), name)
    taken = {run.name: source[same.get(run.name, run.name)] for run in runs}
    own = {name for name, result in finished.items() if not result.made_as}
    return {name: other for name, other in taken.items() if name != other and name not in own}


def _but_for_the_weighting(run: PlannedRun) -> str:
    """Return a digest of what two runs have in common at least if they are one computation."""
    values = portable(run.configuration.values)
    for setting in (weightings.kind, *run.configuration.weighting.model_dump(by_alias=True)):
        values.pop(setting, None)
    return digest(values)


def _of(run: PlannedRun, sizes: Sizes) -> str:
    counted: Sequence[int] = ()
    if run.configuration.weighting.counts_only:
        try:
            counted = sizes(with_absolute_data(run), run.clients)
        except (ConfigurationError, DataError):
            counted = ()
    return computation(run.configuration, counted)


def as_run(result: RunResult, run: PlannedRun) -> RunResult:
    """Return the result of the run whose computation another run is, as that of the other."""
    return replace(
        result,
        name=run.name,
        configuration=portable(run.configuration.values),
        # A copy that goes back to the run that it is a copy of is that run's own again.
        made_as="" if result.made_as == run.name else result.made_as or result.name,
    )
