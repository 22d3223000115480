"""Two configurations with the same seeds and partitions: does one differ from the other?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LEVEL = 0.05
"""An order is called significant where chance alone would give it more seldom than this."""

FINEST = 1e-9
"""Differences are told apart down to this share of a pair's numbers, and of the median pair's."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Paired:
    """A paired comparison of n numbers with n others.

    Attributes:
        pairs: n.
        difference: The mean of one − other, in their unit; NaN without a pair, and where a number
            is not finite.
        low: Lower end of its 95 % interval; None with fewer than two pairs, and where a number is
            not finite.
        high: Upper end.
        p_value: Of the exact two-sided test; None with fewer than two pairs, and where a number is
            not finite and has no worse side.
        test: "signed-rank", or "sign" where differences are 0 or tied, so that ranks are not exact.
        one_not_finite: In how many pairs the one number is not finite.
        other_not_finite: In how many the other is not.
        direction: 1 where the one side has the greater numbers, −1 where the other has, 0 where
            neither has: by the mean difference; where a number is not finite by the test's
            statistic.
        contradicted: Whether the test's statistic points elsewhere than the mean, to the other side
            or to one where the mean has none: most differences are to the one side, and few greater
            ones to the other.
    """

    pairs: int
    difference: float
    low: float | None
    high: float | None
    p_value: float | None
    test: str
    one_not_finite: int = 0
    other_not_finite: int = 0
    direction: int = 0
    contradicted: bool = False

    @property
    def testable(self) -> bool:
        """Whether there are enough pairs to say anything of an order."""
        return self.p_value is not None

    @property
    def finite(self) -> bool:
        """Whether all numbers are finite, so that there is a mean difference."""
        return not self.one_not_finite and not self.other_not_finite

    @property
    def by_interval(self) -> bool:
        """Whether the 95 % interval of the difference leaves out 0."""
        return self.low is not None and self.high is not None and not self.low <= 0.0 <= self.high

    @property
    def by_test(self) -> bool:
        """Whether the exact test rejects, whatever the interval has.

        One outlier on the right side widens the interval beyond 0 and weakens no order.
        """
        return self._rejects and not self.contradicted

    @property
    def undecided(self) -> bool:
        """Whether the exact test rejects to the other side than the mean has it."""
        return self._rejects and self.contradicted

    @property
    def _rejects(self) -> bool:
        return self.p_value is not None and self.p_value <= LEVEL

    @property
    def without_width(self) -> bool:
        """Whether the interval is a point, as of differences that are all one number."""
        return self.low is not None and self.high is not None and math.isclose(self.low, self.high)


def compare_pairs(
    one: Sequence[float],
    other: Sequence[float],
    *,
    higher_is_better: bool | None = True,
    resolution: float = 0.0,
) -> Paired:
    """Return the paired comparison of some numbers with others.

    The interval is Student's over the n differences, with n − 1 degrees of freedom. The test is
    Wilcoxon's signed-rank test with its exact distribution, or the exact sign test where the ranks
    are tied or a difference is 0. With n pairs its p-value is at least 2^(1 − n): below six pairs
    it cannot reject.

    A number that is not finite, of a run that has diverged (NaN) or has not reached a value
    (infinite), is worse than any that is, and as bad as another such: leaving the pair out would
    compare those alone that have got through. By how much is not known, so there is neither a mean
    difference nor an interval, and an order can come from the test alone. There such a difference
    is larger than any that is known; between several of one sign the ranks' order does not matter,
    with both signs the sign test is taken.

    Numbers that come in steps, as accuracies over m images do (1/m), may have one difference in all
    pairs though the runs vary. The deviation of the differences is therefore taken to be at least
    resolution / √n, the smallest above 0 that such numbers can have: that of one difference which
    is a step off. At one deviation a greater mean difference, and at one mean difference a smaller
    deviation, never turns an order into none.

    Args:
        one: (n,) numbers.
        other: (n,) numbers, of the same seeds in the same order.
        higher_is_better: Which side is the worse one for a number that is not finite; None: there
            is none, and such numbers have no test either.
        resolution: The step in which the numbers come, in their unit; 0: they may be any.

    Raises:
        ValueError: There are not as many of both.

    Source:
        Wilcoxon (1945), "Individual comparisons by ranking methods"; Demšar (2006), "Statistical
        comparisons of classifiers over multiple data sets".

    Example:
        >>> paired = compare_pairs([2.0, 4.0, 3.0], [1.0, 2.0, 2.0])
        >>> paired.pairs, round(paired.difference, 3), round(paired.low, 3), round(paired.high, 3)
        (3, 1.333, -0.101, 2.768)
        >>> never = compare_pairs([2, 4, math.inf], [1, 2, 3], higher_is_better=False)
        >>> never.p_value, never.low, never.one_not_finite, never.direction
        (0.25, None, 1, 1)
    """
    from scipy import stats

    if len(one) != len(other):
        raise ValueError(f"got {len(one)} numbers and {len(other)} others; expected as many")
    sides = np.array([one, other], np.float64)
    lost = ~np.isfinite(sides)
    mine, theirs = (int(side.sum()) for side in lost)
    count = len(one)
    if not count:
        return Paired(0, math.nan, None, None, None, "")
    if lost.any() and (higher_is_better is None or count == 1):
        return Paired(count, math.nan, None, None, None, "", mine, theirs)
    differences, whole = _differences(sides, lost, higher_is_better=bool(higher_is_better))
    test, p_value, direction = _exact_test(whole) if count > 1 else ("", None, 0)
    if lost.any():
        return Paired(count, math.nan, None, None, p_value, test, mine, theirs, direction)
    mean = math.fsum(differences) / count
    sign = int(np.sign(mean))
    if count == 1:
        return Paired(1, mean, None, None, None, "", direction=sign)
    with np.errstate(over="ignore"):
        deviation = max(float(differences.std(ddof=1)), resolution / math.sqrt(count))
    half = float(stats.t.ppf(1 - LEVEL / 2, count - 1)) * deviation / math.sqrt(count)
    against = sign != direction and direction != 0
    low, high = mean - half, mean + half
    return Paired(count, mean, low, high, p_value, test, direction=sign, contradicted=against)


def _differences(
    sides: FloatArray, lost: npt.NDArray[np.bool_], *, higher_is_better: bool
) -> tuple[FloatArray, FloatArray]:
    """Return (n,) one − other, and the same in whole steps of the finest that is told apart.

    Infinite where one number alone is not finite, 0 where neither is, or they differ by less than
    half a step, or by less than half of what the pair's own numbers can tell.
    """
    worst = -math.inf if higher_is_better else math.inf
    one, other = np.where(lost, worst, sides)
    with np.errstate(invalid="ignore"):
        differences = np.where(lost.all(axis=0), 0.0, one - other)
    greatest = np.where(lost, 0.0, np.abs(sides)).max(axis=0)
    # Equal differences of shares can differ in their last bits, and so be no ties to the test. The
    # greatest of all pairs is no scale for them: beside one outlier all others would be ties.
    finest = FINEST * float(np.median(greatest))
    with np.errstate(over="ignore"):
        whole = np.rint(differences / finest) if finest else differences
    none = (whole == 0.0) | (np.abs(differences) < FINEST * greatest / 2)
    return np.where(none, 0.0, differences), np.where(none, 0.0, whole)


def _exact_test(differences: FloatArray) -> tuple[str, float, int]:
    """Return the exact test of some differences, its two-sided p-value, and where they point."""
    from scipy import stats

    sizes = np.abs(differences)
    known = sizes[np.isfinite(sizes)]
    one_way = np.unique(differences[np.isinf(differences)]).size <= 1
    if known.all() and np.unique(known).size == known.size and one_way:
        ranks = np.argsort(np.argsort(sizes, kind="stable")) + 1.0
        signed = np.sign(differences) * ranks
        p_value = float(stats.wilcoxon(signed, method="exact").pvalue)
        return "signed-rank", p_value, int(np.sign(signed.sum()))
    signs = np.sign(differences)
    return "sign", _sign_test(differences[sizes > 0]), int(np.sign(signs.sum()))


def _sign_test(differences: FloatArray) -> float:
    """Return the exact two-sided p-value of the sign test; 1 without a difference."""
    from scipy import stats

    if not differences.size:
        return 1.0
    return float(stats.binomtest(int((differences > 0).sum()), differences.size).pvalue)
