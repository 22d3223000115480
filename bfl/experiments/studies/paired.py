"""Two configurations with the same seeds and partitions: does one differ from the other?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.05
"""An order is called significant where chance alone would give it more seldom than this."""

FINEST = 1e-9
"""Differences are told apart down to this share of the greatest number."""


@dataclass(frozen=True)
class Paired:
    """A paired comparison of n numbers with n others.

    Attributes:
        pairs: n.
        difference: The mean of one − other, in their unit; NaN without a pair.
        low: Lower end of its 95 % interval; None with fewer than two pairs.
        high: Upper end.
        p_value: Of the exact two-sided test; None with fewer than two pairs.
        test: "signed-rank", or "sign" where differences are 0 or tied, so that ranks are not exact.
    """

    pairs: int
    difference: float
    low: float | None
    high: float | None
    p_value: float | None
    test: str

    @property
    def testable(self) -> bool:
        """Whether there are enough pairs to say anything of an order."""
        return self.low is not None

    @property
    def by_interval(self) -> bool:
        """Whether the 95 % interval of the difference leaves out 0.

        One without width says nothing: differences that are one number, as those of few test images
        may be, have no spread to make an interval of.
        """
        return self._leaves_out_zero and not math.isclose(self.low or 0.0, self.high or 0.0)

    @property
    def by_test(self) -> bool:
        """Whether the exact test rejects, as well as the interval leaving out 0."""
        return self._leaves_out_zero and self.p_value is not None and self.p_value <= LEVEL

    @property
    def _leaves_out_zero(self) -> bool:
        return self.low is not None and self.high is not None and not self.low <= 0.0 <= self.high


def compare_pairs(one: Sequence[float], other: Sequence[float]) -> Paired:
    """Return the paired comparison of some numbers with others.

    The interval is Student's over the n differences, with n − 1 degrees of freedom. The test is
    Wilcoxon's signed-rank test with its exact distribution, or the exact sign test where the ranks
    are tied or a difference is 0. With n pairs its p-value is at least 2^(1 − n): below six pairs
    it cannot reject.

    Args:
        one: (n,) numbers.
        other: (n,) numbers, of the same seeds in the same order.

    Raises:
        ValueError: There are not as many of both, or one is not finite.

    Source:
        Wilcoxon (1945), "Individual comparisons by ranking methods"; Demšar (2006), "Statistical
        comparisons of classifiers over multiple data sets".

    Example:
        >>> paired = compare_pairs([2.0, 4.0, 3.0], [1.0, 2.0, 2.0])
        >>> paired.pairs, round(paired.difference, 3), round(paired.low, 3), round(paired.high, 3)
        (3, 1.333, -0.101, 2.768)
    """
    from scipy import stats

    if len(one) != len(other):
        raise ValueError(f"got {len(one)} numbers and {len(other)} others; expected as many")
    differences = np.asarray(one, np.float64) - np.asarray(other, np.float64)
    if not np.isfinite(differences).all():
        raise ValueError("numbers that are not finite cannot be compared")
    count = differences.size
    if not count:
        return Paired(0, math.nan, None, None, None, "")
    mean = math.fsum(differences) / count
    if count == 1:
        return Paired(1, mean, None, None, None, "")
    error = float(differences.std(ddof=1)) / math.sqrt(count)
    half = float(stats.t.ppf(1 - LEVEL / 2, count - 1)) * error
    # Equal differences of shares can differ in their last bits, and so be no ties to the test.
    finest = FINEST * float(np.abs([*one, *other]).max())
    whole = np.rint(differences / finest) if finest else differences
    sizes = np.abs(whole)
    if sizes.all() and np.unique(sizes).size == count:
        test, p_value = "signed-rank", float(stats.wilcoxon(whole, method="exact").pvalue)
    else:
        test, p_value = "sign", _sign_test(whole[sizes > 0])
    return Paired(count, mean, mean - half, mean + half, p_value, test)


def _sign_test(differences: np.typing.NDArray[np.float64]) -> float:
    """Return the exact two-sided p-value of the sign test; 1 without a difference."""
    from scipy import stats

    if not differences.size:
        return 1.0
    return float(stats.binomtest(int((differences > 0).sum()), differences.size).pvalue)
