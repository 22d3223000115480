"""The deviation of an accuracy over test images, besides that over the seeds."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

import numpy as np

from bfl.evaluation.metrics import metrics
from bfl.evaluation.predictives.evaluated import of_a_posterior
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.curves import curve_of
from bfl.experiments.studies.run_result import RunResult

MOST_IMAGES = 100_000
"""The most images that an accuracy may be a share of."""

ROUNDING = 5e-7
"""The greatest distance from a multiple of a share, relative to it: curves have seven digits."""


def deviation_by_images(
    column: Column, results: Collection[RunResult], others: Iterable[RunResult] = ()
) -> float | None:
    """Return the binomial standard error of one run's share of test images, in the column's unit.

    The seeds are evaluated on the same images, so that their mean has no less. Results do not keep
    the number of images: it is the smallest one of which the numbers of all evaluated rounds of all
    runs that are evaluated on these images are shares.

    Args:
        column: A column; None is returned for one whose numbers are no shares.
        results: Finished runs evaluated on the same images.
        others: Further ones, of which those evaluated on the same images count.
    """
    name = curve_of(of_a_posterior(column.metric))
    if name not in metrics.names() or not metrics.get(name).share_of_examples:
        return None
    curve = curve_of(column.metric)
    finals = [n for r in results if (n := r.number(column.metric)) is not None]
    judged = {_images(r) for r in results}
    alike = [*results, *(r for r in others if judged == {_images(r)})]
    rounds = [row[curve] for r in alike for row in r.rounds if row.get(curve) is not None]
    rounds += [n for r in alike if (n := r.number(curve)) is not None]
    if not finals or not all(map(math.isfinite, finals)):
        return None
    share = math.fsum(finals) / len(finals)
    step = share_step((*finals, *rounds))
    return column.scale * math.sqrt(share * (1.0 - share) * step) if step else None


def _images(result: RunResult) -> tuple[str, ...]:
    """Return what says which test images a run is evaluated on."""
    return tuple(str(result.configuration.get(key)) for key in ("dataset", "test-examples"))


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
