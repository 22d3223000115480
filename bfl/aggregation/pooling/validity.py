"""Checks of weights, of clients' values and of pooled values: nothing wrong is mended unsaid."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from bfl.aggregation.pooling.base import Decoded, PoolingRule
from bfl.errors import PosteriorError
from bfl.posteriors.posterior import Posterior, Vector, between


def checked_weight(weight: float) -> float:
    """Return a weight that is finite and not negative.

    Raises:
        ValueError: It is neither.
    """
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"a weight is {weight}; expected a finite number that is not negative")
    return float(weight)


def normalised(weights: Iterable[float]) -> list[float]:
    """Return weights in proportion to those given, with sum 1.

    Raises:
        PosteriorError: No weight is positive.
        ValueError: A weight is negative or not finite.
    """
    checked = [checked_weight(weight) for weight in weights]
    largest = max(checked, default=0.0)
    if largest == 0:
        raise PosteriorError("nothing to pool: no client has a positive weight")
    # Divided by the largest first, so that the sum can neither overflow nor underflow.
    scaled = [weight / largest for weight in checked]
    total = math.fsum(scaled)
    return [weight / total for weight in scaled]


def is_sound(posterior: Posterior, part: slice) -> bool:
    """Return whether a block's means are finite and its variances finite and positive."""
    mean, variance = posterior.mean[part], posterior.variance[part]
    return between(0, variance, math.inf) and between(-math.inf, mean, math.inf)


def check_real(rule: PoolingRule, what: str, values: Any, size: int) -> None:
    """Refuse an array of a rule's that is not of real numbers, or not of shape (size,).

    Raises:
        PosteriorError: Naming the rule and the array.
    """
    if np.shape(values) != (size,):
        raise PosteriorError(
            f"strategy {rule.name} gives a {what} of shape {np.shape(values)}; expected ({size},)"
        )
    # An assignment to real numbers would drop imaginary parts and take a mask for 0 and 1.
    if np.asarray(values).dtype.kind not in "fiu":
        raise PosteriorError(
            f"strategy {rule.name} gives a {what} of type {np.asarray(values).dtype}; expected "
            "real numbers"
        )


def store(rule: PoolingRule, decoded: Decoded, part: slice, mean: Vector, variance: Vector) -> int:
    """Round a block's pooled means and variances into views (B,); return how many were clipped.

    What lies outside the finite range of the views' types, or below their smallest normal variance,
    is clipped.

    Raises:
        PosteriorError: A shape, a type or a value is wrong, or a mark is not declared.
    """
    check_real(rule, "mean", decoded.mean, mean.size)
    check_real(rule, "variance", decoded.variance, mean.size)
    _check_marks(rule, decoded, mean.size)
    most, largest = (float(np.finfo(view.dtype).max) for view in (mean, variance))
    smallest = float(np.finfo(variance.dtype).tiny)
    if between(-most, decoded.mean, most) and between(smallest, decoded.variance, largest):
        mean[...], variance[...] = decoded.mean, decoded.variance
        return 0
    sound = (decoded.variance > 0) & (decoded.variance < math.inf)
    for what, good in (
        ("means that are not finite", np.isfinite(decoded.mean)),
        ("variances that are not positive and finite", sound),
    ):
        if bad := int(mean.size - np.count_nonzero(good)):
            raise PosteriorError(
                f"strategy {rule.name} gives {bad} of {mean.size} {what}, among the parameters "
                f"{part.start} to {part.stop - 1}"
            )
    mean[...] = np.clip(decoded.mean, -most, most)
    variance[...] = np.clip(decoded.variance, smallest, largest)
    outside = np.abs(decoded.mean) > most
    outside |= (decoded.variance < smallest) | (decoded.variance > largest)
    return int(np.count_nonzero(outside))


def _check_marks(rule: PoolingRule, decoded: Decoded, size: int) -> None:
    for name, mask in decoded.marks.items():
        if name not in rule.fractions:
            raise PosteriorError(
                f"strategy {rule.name} marks parameters as '{name}', which nobody would be told; "
                f"its fractions are {', '.join(rule.fractions) or 'none'}"
            )
        if np.shape(mask) != (size,) or np.asarray(mask).dtype != np.bool_:
            raise PosteriorError(
                f"strategy {rule.name} gives a mark '{name}' of shape {np.shape(mask)} and type "
                f"{np.asarray(mask).dtype}; expected a mask ({size},)"
            )
