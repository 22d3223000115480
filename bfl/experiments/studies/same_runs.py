"""Runs of a study that resolve to one computation: they are made once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def same_runs(runs: Sequence[PlannedRun], sizes: Sizes) -> dict[str, str]:
    """Return which runs need not be made, by name: the earlier run that is the same computation.

    Args:
        runs: Runs whose data are on this machine; a run whose data cannot be had is its own.
        sizes: Tells the clients' numbers of examples.
    """
    first: dict[str, str] = {}
    same = {}
    for run in runs:
        known = first.setdefault(_of(run, sizes), run.name)
        if known != run.name:
            same[run.name] = known
    return same


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
        made_as=result.made_as or result.name,
    )
