"""ε against closed forms and another accountant; the system's normal numbers and their tails."""

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import brentq
from scipy.stats import kstest, norm

from bfl.federation.outgoing import Noise
from bfl.federation.privacy import (
    MOST_HALVINGS,
    Ledger,
    SystemNormals,
    gaussian_epsilon,
    noise_multiplier_for,
    sampled_gaussian_epsilon,
    sampled_noise_multiplier_for,
)


def analytic_epsilon(sigma: float, delta: float) -> float:
    """Return ε of the Gaussian mechanism with sensitivity 1 by Balle and Wang (2018), eq. (6)."""

    def excess(epsilon: float) -> float:
        left = norm.cdf(1 / (2 * sigma) - epsilon * sigma)
        return left - math.exp(epsilon) * norm.cdf(-1 / (2 * sigma) - epsilon * sigma) - delta

    return float(brentq(excess, 0.0, 300.0, xtol=1e-12))


@pytest.mark.parametrize("sigma", [0.6, 1.0, 4.0])
@pytest.mark.parametrize("rounds", [1, 7, 50])
@pytest.mark.parametrize("delta", [1e-5, 1e-3])
def test_rounds_compose_as_one_release_with_less_noise(
    sigma: float, rounds: int, delta: float
) -> None:
    found = gaussian_epsilon(sigma, rounds, delta)
    assert found == pytest.approx(analytic_epsilon(sigma / rounds**0.5, delta), rel=1e-6)
    assert noise_multiplier_for(found, rounds, delta) == pytest.approx(sigma, rel=1e-6)


def renyi_bound(sigma: float, rate: float, steps: int, delta: float) -> float:
    """Return ε by Rényi divergences of whole orders α, after Mironov, Talwar and Zhang (2019).

    Σ_k C(α, k) (1 − q)^(α−k) q^k exp((k² − k) / 2σ²), and Mironov (2017), Proposition 3.
    """

    def divergence(order: int) -> float:
        moment = math.fsum(
            math.comb(order, k)
            * (1 - rate) ** (order - k)
            * rate**k
            * math.exp((k * k - k) / (2 * sigma**2))
            for k in range(order + 1)
        )
        return math.log(moment) / (order - 1)

    return min(steps * divergence(a) + math.log(1 / delta) / (a - 1) for a in range(2, 33))


@pytest.mark.parametrize(("sigma", "rate"), [(0.5, 0.01), (1.0, 0.1), (2.0, 0.5)])
def test_one_secret_batch_has_the_epsilon_of_the_closed_form(sigma: float, rate: float) -> None:
    """δ = q δ_Gauss(log(1 + (e^ε − 1) / q)): amplification by subsampling, which is tight."""
    whole = math.log1p(math.expm1(sampled_gaussian_epsilon(sigma, rate, 1, 1e-5)) / rate)
    assert whole == pytest.approx(analytic_epsilon(sigma, 1e-5 / rate), rel=1e-3)


@pytest.mark.parametrize(
    ("sigma", "rate", "steps"), [(1.0, 0.01, 1000), (1.5, 0.1, 100), (2.0, 0.5, 20)]
)
def test_secret_batches_amplify_as_published(sigma: float, rate: float, steps: int) -> None:
    """Below the bound by the published sums, and not by far; more steps and less noise tell."""
    found = sampled_gaussian_epsilon(sigma, rate, steps, 1e-5)
    bound = renyi_bound(sigma, rate, steps, 1e-5)
    assert 0.7 * bound < found < bound
    assert found < 0.6 * gaussian_epsilon(sigma, steps, 1e-5)
    assert found < sampled_gaussian_epsilon(sigma, rate, steps + 1, 1e-5)
    again = sampled_noise_multiplier_for(found, rate, steps, 1e-5)
    assert sigma <= again < 1.2 * sigma
    assert sampled_gaussian_epsilon(again, rate, steps, 1e-5) <= found


def test_batches_of_all_examples_amplify_nothing() -> None:
    assert sampled_gaussian_epsilon(2.0, 1.0, 30, 1e-5) == gaussian_epsilon(2.0, 30, 1e-5)
    assert sampled_noise_multiplier_for(3.0, 1.0, 30, 1e-5) == noise_multiplier_for(3.0, 30, 1e-5)
    assert sampled_gaussian_epsilon(2.0, 0.1, 0, 1e-5) == 0.0


def test_hiding_which_data_a_client_has_takes_twice_the_noise() -> None:
    """Two clipped differences are up to 2 C apart, one and none up to C."""
    replaced = Noise(noise_multiplier=2.0).mechanism()
    zeroed = Noise(noise_multiplier=1.0, adjacency="zero-out").mechanism()
    at_server = Noise(noise_multiplier=2.0, noise_at="server").mechanism()
    assert replaced
    assert zeroed
    assert at_server
    assert replaced.epsilon(5) == zeroed.epsilon(5) == gaussian_epsilon(1.0, 5, 1e-5)
    assert replaced.multiplier_for(replaced.epsilon(5), 5) == pytest.approx(2.0)
    assert replaced.epsilon(0) == 0.0
    # Who adds the noise changes who learns what, not ε.
    assert at_server.epsilon(5) == replaced.epsilon(5)


def test_the_ledger_counts_a_round_that_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "rounds-begun"
    ledger = Ledger(path)
    assert [ledger.begin(number) for number in (1, 2)] == [True, True]
    again = Ledger(path, range(1, 2))  # killed in round 2
    assert again.begun == [1, 2]
    assert again.begin(2)
    assert Ledger(path, range(1, 3)).begun == [1, 2, 2]
    same_noise = Ledger(None, range(1, 3))  # counts once
    assert [same_noise.begin(number) for number in (2, 3)] == [False, True]
    assert same_noise.begun == [1, 2, 3]


@pytest.mark.parametrize(
    ("multiplier", "delta", "least", "most"),
    [(1e6, 1e-5, 0.0, 1e-3), (5.0, 0.4, 0.0, 1e-3), (1e-3, 1e-5, 1e5, math.inf)],
)
def test_the_ends_of_the_range_have_an_account(
    multiplier: float, delta: float, least: float, most: float
) -> None:
    assert least <= sampled_gaussian_epsilon(multiplier, 0.01, 10, delta) <= most
    assert least <= sampled_gaussian_epsilon(multiplier, 0.1, 10, delta) <= most


def test_the_systems_numbers_are_normal() -> None:
    drawn = SystemNormals().standard_normal(200_000)
    assert drawn.dtype == np.float64
    assert kstest(drawn, norm.cdf).pvalue > 1e-6
    assert (drawn < 0).mean() == pytest.approx(0.5, abs=0.01)
    assert len(np.unique([drawn, SystemNormals().standard_normal(200_000)])) > 399_990
    uniform = SystemNormals().random(10_000)
    assert 0.0 <= uniform.min() < 0.01
    assert 0.99 < uniform.max() < 1.0


class GivenWords(SystemNormals):
    """Its words are the given ones, one after the other."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def _words(self, size: int) -> npt.NDArray[np.uint64]:  # type: ignore[override]
        return np.array([self.left.pop(0) for _ in range(size)], np.uint64)


@pytest.mark.parametrize("negative", [False, True])
def test_a_word_of_zeros_leads_farther_out(negative: bool) -> None:
    """With n words of 64 zeros before a 1 the tail has 2^-(64 n + 2): its quantile, on one side."""
    for zeros in (0, 1, 2, 20):
        [drawn] = GivenWords(int(negative), *[0] * zeros, 1).standard_normal(1)
        halvings = min(64 * zeros, MOST_HALVINGS)
        tail = norm.logsf(abs(drawn)) / np.log(2.0)
        assert tail == pytest.approx(-2 - halvings, abs=1e-6)
        assert (drawn < 0) == negative
    assert [GivenWords(1 << place)._halvings(1) for place in range(64)] == [*range(64)]
