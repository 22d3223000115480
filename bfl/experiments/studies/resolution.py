"""In which steps a column's numbers come: what one test image, or one evaluated round, makes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from bfl.evaluation.metrics import metrics
from bfl.evaluation.predictives.judged import of_a_posterior
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.curves import curve_of, rounds_to
from bfl.experiments.studies.run_result import RunResult

MOST_IMAGES = 100_000
"""Of how many images an accuracy may be the share."""

ROUNDING = 5e-7
"""How far a number may be from a multiple of a step, as a share of it: curves have seven digits."""


def resolution(column: Column, results: Sequence[RunResult]) -> float:
    """Return the step in which a column's numbers come, in its unit; 0: they may be any.

    An accuracy over m images is a multiple of 1/m, with the smallest m that fits the numbers of all
    evaluated rounds (results do not keep m itself); the number of rounds to a value is that of an
    evaluated round.
    """
    if rounds_to(column.metric):
        gaps = (_least_gap([row["round"] for row in r.rounds if "round" in row]) for r in results)
        return column.scale * max(gaps, default=0.0)
    name = curve_of(of_a_posterior(column.metric))
    if name not in metrics.names() or not metrics.get(name).share_of_examples:
        return 0.0
    curve = curve_of(column.metric)
    finals = (result.number(column.metric) for result in results)
    rounds = (row.get(curve) for result in results for row in result.rounds)
    return column.scale * share_step(n for n in (*finals, *rounds) if n is not None)


def share_step(numbers: Iterable[float]) -> float:
    """Return 1/m of the smallest m of which all numbers are shares; 0 where there is no such m.

    Example:
        >>> share_step([0.25, 0.5]), share_step([347 / 360, 0.9722222])
        (0.25, 0.002777777777777778)
    """
    images = np.arange(1, MOST_IMAGES + 1, dtype=np.float64)
    for number in {n for n in numbers if math.isfinite(n)}:
        right = number * images
        images = images[np.abs(right - np.rint(right)) <= ROUNDING * np.abs(right)]
    return 1.0 / float(images[0]) if images.size else 0.0


def _least_gap(rounds: Sequence[float]) -> float:
    """Return the least number of rounds between two evaluated ones; 1 with fewer than two."""
    inside = sorted({float(number) for number in rounds})
    return min((b - a for a, b in pairwise(inside)), default=1.0)
