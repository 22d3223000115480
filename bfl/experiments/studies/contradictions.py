"""In what two results that claim to be one run contradict each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bfl.experiments.studies.run_result import COMMIT, RunResult, short

Numbers = dict[str, Any]


def untrue_copies(results: Iterable[RunResult]) -> Iterator[str]:
    """Yield which results are said to be one computation and have different numbers.

    Args:
        results: All that there are, one of each run.
    """
    of_source: dict[str, RunResult] = {}
    # The run that was made comes first, then those that are said to be the same.
    for result in sorted(results, key=lambda each: (bool(each.made_as), each.name)):
        first = of_source.setdefault(result.made_as or result.name, result)
        different = different_numbers(first, result) if first is not result else {}
        if different:
            name, (one, other) = next(iter(different.items()))
            yield (
                f"{first.source} and {result.source} are said to be one computation (made-as) and "
                f"differ in {len(different)} numbers, {name} is {one!r} and {other!r}; remove "
                "both, and the run is made again"
            )


def different_numbers(one: RunResult, other: RunResult) -> dict[str, tuple[Any, Any]]:
    """Return what differs between two results of one run, with both values; NaN equals NaN.

    Metrics are compared in full, the points of curves and the clients' numbers to the seven digits
    that are kept; who holds which data where both know it. Nothing is compared that machines differ
    in: seconds, versions. Of two numbers of rounds the first rounds have to be the same, the final
    numbers are of other posteriors.

    Of metrics of two that were made by one version all are compared; what another version did not
    measure, or did not keep of curves and clients, is no difference.
    """
    one_commit = one.environment.get(COMMIT) == other.environment.get(COMMIT)
    found: dict[str, tuple[Any, Any]] = {}
    if one.number_of_rounds == other.number_of_rounds:
        mine, theirs = dict(one.metrics), dict(other.metrics)
        found |= _differing(mine, theirs, {*mine, *theirs} if one_commit else {*mine} & {*theirs})
        for curves, others in ((one.retention, other.retention), (one.clients, other.clients)):
            what = "retention" if curves is one.retention else "client"
            mine, theirs = dict(_leaves(what, short(curves))), dict(_leaves(what, short(others)))
            found |= _differing(mine, theirs, {*mine} & {*theirs})
    found |= _different_rounds(one, other)
    if one.partition and other.partition and one.partition != other.partition:
        found["partition"] = one.partition[:12], other.partition[:12]
    return found


def _differing(mine: Numbers, theirs: Numbers, names: set[str]) -> dict[str, tuple[Any, Any]]:
    """Return which of some numbers are not the same to the last bit, in the order of the first."""
    pairs = {name: (mine.get(name), theirs.get(name)) for name in {**mine, **theirs}}
    return {n: pair for n, pair in pairs.items() if n in names and repr(pair[0]) != repr(pair[1])}


def _different_rounds(one: RunResult, other: RunResult) -> dict[str, tuple[Any, Any]]:
    """Return what differs in the evaluated rounds that both have, of the curves that both have."""
    mine, theirs = (
        {int(row["round"]): row for row in short(result.rounds)} for result in (one, other)
    )
    found: dict[str, tuple[Any, Any]] = {}
    if one.number_of_rounds == other.number_of_rounds and mine.keys() != theirs.keys():
        # With other numbers of rounds the last one alone may be evaluated in the shorter run.
        found["evaluated rounds"] = len(mine), len(theirs)
    curves = {n for row in mine.values() for n in row} & {n for r in theirs.values() for n in r}
    for number in sorted(mine.keys() & theirs.keys()):
        different = _differing(mine[number], theirs[number], curves)
        found |= {f"{name} of round {number}": pair for name, pair in different.items()}
    return found


def _leaves(name: str, content: Any) -> Iterator[tuple[str, Any]]:
    """Yield the numbers in nested mappings and lists, each with its path in words."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from _leaves(f"{name} {key}", value)
    elif isinstance(content, list):
        yield f"{name}, points", len(content)
        for index, value in enumerate(content):
            yield from _leaves(f"{name}, point {index}", value)
    else:
        yield name, float(content) if isinstance(content, int) else content
