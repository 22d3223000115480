"""The system's normal numbers: the distribution, and tails that nothing cuts off."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import kstest, norm

from bfl.federation.privacy.noise import MOST_HALVINGS, SystemNormals


def test_they_are_normal() -> None:
    drawn = SystemNormals().standard_normal(200_000)
    assert drawn.dtype == np.float64
    assert kstest(drawn, norm.cdf).pvalue > 1e-6
    assert (drawn < 0).mean() == pytest.approx(0.5, abs=0.01)
    assert len(np.unique([drawn, SystemNormals().standard_normal(200_000)])) > 399_990
    uniform = SystemNormals().random(10_000)
    assert 0.0 <= uniform.min() < 0.01
    assert 0.99 < uniform.max() < 1.0


class Given(SystemNormals):
    """Its words are the given ones, one after the other."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def _words(self, size: int) -> npt.NDArray[np.uint64]:  # type: ignore[override]
        return np.array([self.left.pop(0) for _ in range(size)], np.uint64)


@pytest.mark.parametrize("zeros", [0, 1, 2, 4, 20])
@pytest.mark.parametrize("negative", [False, True])
def test_a_word_of_zeros_leads_farther_out(zeros: int, negative: bool) -> None:
    """With n words of 64 zeros before a 1 the tail has 2^-(64 n + 2): its quantile, on one side."""
    [drawn] = Given(int(negative), *[0] * zeros, 1).standard_normal(1)
    halvings = min(64 * zeros, MOST_HALVINGS)
    tail = norm.logsf(abs(drawn)) / np.log(2.0)
    assert tail == pytest.approx(-2 - halvings, abs=1e-6)
    assert (drawn < 0) == negative


@pytest.mark.parametrize("place", range(64))
def test_bits_before_the_first_that_is_set_are_counted(place: int) -> None:
    assert Given(1 << place)._halvings(1) == place
