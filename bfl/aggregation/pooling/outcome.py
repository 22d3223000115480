"""What a rule gives, checked like what a client sends: nothing wrong is mended without a word."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bfl.aggregation.pooling.base import Array, Decoded, PoolingRule
from bfl.errors import PosteriorError
from bfl.posteriors.posterior import Vector, between

CLIPPED = "clipped-fraction"
"""The diagnostic of every rule: the fraction of the Gaussian parameters whose pooled mean or
variance, sound in float64, was clipped to what the result's type can hold."""


@dataclass(frozen=True)
class Outcome:
    """What has become of one block of parameters.

    Attributes:
        part: Which parameters they are.
        clipped: How many were clipped.
        bad_means: How many means are not finite.
        bad_variances: How many variances are not finite or not positive.
        marks: How many of them the rule has marked, by the mark's name.
    """

    part: slice
    clipped: int
    bad_means: int
    bad_variances: int
    marks: dict[str, int]


def check_statistics(rule: PoolingRule, encoded: Sequence[Array], size: int) -> None:
    """Raise unless a rule has encoded a client's block of ``size`` parameters as it declares.

    Raises:
        PosteriorError: Naming the rule and what it gave.
    """
    if len(encoded) != rule.statistics:
        raise PosteriorError(
            f"strategy {rule.name} encodes a client as {len(encoded)} statistics; "
            f"it declares {rule.statistics}"
        )
    for number, statistic in enumerate(encoded, start=1):
        _check_real(rule, f"statistic {number}", statistic, size)


def store(
    rule: PoolingRule, decoded: Decoded, part: slice, mean: Vector, variance: Vector
) -> Outcome:
    """Round a block's pooled means and variances into the views ``mean`` and ``variance`` (B,).

    What lies outside the finite range of the views' types, or below their smallest normal variance,
    is clipped. Where a value is wrong in float64, nothing is stored.

    Raises:
        PosteriorError: A shape or a type is wrong, or a mark is not declared.
    """
    _check_real(rule, "mean", decoded.mean, mean.size)
    _check_real(rule, "variance", decoded.variance, mean.size)
    _check_marks(rule, decoded, mean.size)
    marks = {name: int(np.count_nonzero(mask)) for name, mask in decoded.marks.items()}
    most, largest = _greatest(mean), _greatest(variance)
    smallest = float(np.finfo(variance.dtype).tiny)
    if between(-most, decoded.mean, most) and between(smallest, decoded.variance, largest):
        mean[...], variance[...] = decoded.mean, decoded.variance
        return Outcome(part, 0, 0, 0, marks)
    bad_means = int(np.count_nonzero(~np.isfinite(decoded.mean)))
    sound = (decoded.variance > 0) & (decoded.variance < math.inf)
    bad_variances = int(sound.size - np.count_nonzero(sound))
    if bad_means or bad_variances:
        return Outcome(part, 0, bad_means, bad_variances, marks)
    mean[...] = np.clip(decoded.mean, -most, most)
    variance[...] = np.clip(decoded.variance, smallest, largest)
    outside = np.abs(decoded.mean) > most
    outside |= (decoded.variance < smallest) | (decoded.variance > largest)
    return Outcome(part, int(np.count_nonzero(outside)), 0, 0, marks)


def diagnostics(rule: PoolingRule, outcomes: Sequence[Outcome], size: int) -> dict[str, float]:
    """Return what is reported of all blocks together: fractions of the ``size`` parameters.

    Raises:
        PosteriorError: A mean or a variance is wrong; the message names the rule, how many there
            are, and the first block with any.
    """
    _raise_if_bad(
        rule, "means that are not finite", ((o.part, o.bad_means) for o in outcomes), size
    )
    _raise_if_bad(
        rule,
        "variances that are not positive and finite",
        ((o.part, o.bad_variances) for o in outcomes),
        size,
    )
    marked = {name: sum(o.marks.get(name, 0) for o in outcomes) for name in rule.fractions}
    marked[CLIPPED] = sum(o.clipped for o in outcomes)
    return {name: count / max(size, 1) for name, count in marked.items()}


def _raise_if_bad(
    rule: PoolingRule, what: str, counts: Iterable[tuple[slice, int]], size: int
) -> None:
    bad = [(part, count) for part, count in counts if count]
    if bad:
        first = bad[0][0]
        raise PosteriorError(
            f"strategy {rule.name} gives {sum(count for _, count in bad)} of {size} {what}; the "
            f"first block with any is that of parameters {first.start} to {first.stop - 1}"
        )


def _check_real(rule: PoolingRule, what: str, values: Array, size: int) -> None:
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


def _greatest(view: Vector) -> float:
    return float(np.finfo(view.dtype).max)
