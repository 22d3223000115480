"""Numbers of a run's rounds: the best one, how soon a value is reached, what pooling has done."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from bfl.aggregation.precision_spread import DISTANCE, SPREAD
from bfl.evaluation.metrics import Metric, metrics
from bfl.evaluation.predictives.evaluated import ENSEMBLE
from bfl.posteriors.posterior import FRACTION_AT_FLOOR

BEST = "best-"
"""Prefix of the names of metrics in a run's best evaluated round."""

MEAN = "mean-"
"""Prefix of the names of means over the evaluated rounds."""

OF_POOLING = (SPREAD, DISTANCE)
"""Numbers that a round says of its pool, and that results keep besides its metrics."""

_ROUNDS_TO = re.compile(r"rounds-to-([a-z-]+)-([0-9]+(?:\.[0-9]+)?)")
ROUNDS_TO_FORM = "rounds-to-METRIC-VALUE, such as rounds-to-accuracy-0.5"

_AT_ROUND = re.compile(r"([a-z-]+)-at-round-([1-9][0-9]*)")
AT_ROUND_FORM = "METRIC-at-round-N, such as accuracy-at-round-10"

Rounds = Sequence[Mapping[str, float]]


def kept_of_rounds() -> tuple[str, ...]:
    """Return the names of what results keep of each evaluated round."""
    of_ensembles = (f"{ENSEMBLE}{name}" for name in metrics.names())
    return ("round", *metrics.names(), *of_ensembles, *OF_POOLING, FRACTION_AT_FLOOR)


def names_of_curves() -> tuple[str, ...]:
    """Return all names that ``number_of_curves`` knows, without those that have a value in them."""
    best = [f"{BEST}{name}" for name in metrics.names()]
    return (*best, *(f"{MEAN}{name}" for name in OF_POOLING), FRACTION_AT_FLOOR)


def rounds_to(name: str) -> tuple[type[Metric], float] | None:
    """Return the metric and the value of a name such as ``rounds-to-accuracy-0.5``; None: no such.

    Example:
        >>> rounds_to("rounds-to-accuracy-0.5")[1], rounds_to("rounds-to-nowhere-0.5")
        (0.5, None)
    """
    match = _ROUNDS_TO.fullmatch(name)
    if not match or match[1] not in metrics.names():
        return None
    return metrics.get(match[1]), float(match[2])


def at_round(name: str) -> tuple[str, int] | None:
    """Return the metric and the round of a name such as ``accuracy-at-round-10``; None: no such.

    Example:
        >>> at_round("ensemble-accuracy-at-round-10"), at_round("nowhere-at-round-10")
        (('ensemble-accuracy', 10), None)
    """
    match = _AT_ROUND.fullmatch(name)
    if not match or match[1] not in kept_of_rounds() or match[1] == "round":
        return None
    return match[1], int(match[2])


def curve_of(name: str) -> str:
    """Return the metric whose curve a number is one of, or is the last or the best of.

    Example:
        >>> curve_of("accuracy-at-round-10"), curve_of("best-accuracy"), curve_of("accuracy")
        ('accuracy', 'accuracy', 'accuracy')
    """
    found = at_round(name)
    return found[0] if found else name.removeprefix(BEST)


def number_of_curves(name: str, rounds: Rounds) -> float | None:
    """Return a number of a run's evaluated rounds; None: they do not have it.

    Args:
        name: ``best-METRIC``, the metric of the best evaluated round, NaN where none has a finite
            one; ``rounds-to-METRIC-VALUE``, the first evaluated round whose metric is as good as
            the value, infinite where none is; ``mean-log-precision-spread`` or
            ``mean-distance-from-average``, the mean over the evaluated rounds;
            ``fraction-at-scale-floor``, that of the last evaluated round; ``METRIC-at-round-N``,
            that of round N if it is evaluated.
        rounds: Their ``round`` and metrics.

    Source:
        Yang et al. (2023), HBFL, Table 1, has the best round's accuracy.
    """
    if reached := rounds_to(name):
        return _first(rounds, *reached)
    if found := at_round(name):
        return next((row.get(found[0]) for row in rounds if row.get("round") == found[1]), None)
    if name == FRACTION_AT_FLOOR:
        return next((row[name] for row in reversed(rounds) if name in row), None)
    if name in names_of_curves() and name.startswith(BEST):
        metric = metrics.get(name.removeprefix(BEST))
        return _of_finite(rounds, metric.name, max if metric.higher_is_better else min)
    if name in names_of_curves():
        return _of_finite(rounds, name.removeprefix(MEAN), lambda v: math.fsum(v) / len(v))
    return None


def _of_finite(rounds: Rounds, name: str, of: Callable[[Sequence[float]], float]) -> float | None:
    """Return what is made of the finite values; NaN where none is finite, None without values."""
    values = [entry[name] for entry in rounds if name in entry]
    finite = [value for value in values if math.isfinite(value)]
    return of(finite) if finite else math.nan if values else None


def _first(rounds: Rounds, metric: type[Metric], value: float) -> float | None:
    judged = [entry for entry in rounds if metric.name in entry]
    sign = 1.0 if metric.higher_is_better else -1.0
    found = (e["round"] for e in judged if sign * e[metric.name] >= sign * value)
    return next(iter(found), math.inf) if judged else None
