"""Every weighting: what they share, and each against its formula."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy_server import NumpyServer

from bfl.aggregation.weightings import Weighting, weightings
from bfl.errors import PosteriorError
from bfl.posteriors import Posterior

EVERY = pytest.mark.parametrize("scheme", [c() for c in weightings.classes()], ids=lambda w: w.name)


def clients(seed: int, count: int, size: int = 20) -> list[Posterior]:
    rng = np.random.default_rng(seed)
    return [
        Posterior(rng.normal(size=size), np.exp(rng.uniform(-2, 2, size)), rng.normal(size=2))
        for _ in range(count)
    ]


def weigh(
    scheme: Weighting,
    posteriors: Sequence[Posterior],
    examples: Sequence[int],
    previous: Posterior | None = None,
) -> npt.NDArray[np.float64]:
    """Return the weights, with a server and reports for a scheme that needs them."""
    server = NumpyServer(posteriors[0].size + posteriors[0].point.size)
    reports = [dict.fromkeys(scheme.reads, float(np.abs(p.mean).sum())) for p in posteriors]
    return scheme.weigh(posteriors, examples, previous, server, reports)


def kl(q: Posterior, p: Posterior) -> float:
    terms = q.variance / p.variance - 1 + np.log(p.variance / q.variance)
    return float(0.5 * np.sum(terms + (q.mean - p.mean) ** 2 / p.variance))


@EVERY
@given(seed=st.integers(0, 10_000), count=st.integers(1, 6))
@settings(max_examples=20)
def test_weights_are_a_distribution_and_follow_their_clients(
    scheme: Weighting, seed: int, count: int
) -> None:
    rng = np.random.default_rng(seed)
    everyone, previous = clients(seed, count), clients(seed + 1, 1)[0]
    examples = [int(n) for n in rng.integers(1, 100, count)]
    weights = weigh(scheme, everyone, examples, previous)
    assert weights.shape == (count,)
    assert weights.dtype == np.float64
    assert weights.sum() == pytest.approx(1)
    assert np.all(weights >= 0)
    order = rng.permutation(count)
    permuted = weigh(scheme, [everyone[k] for k in order], [examples[k] for k in order], previous)
    np.testing.assert_allclose(permuted, weights[order], rtol=1e-9)


@EVERY
@given(seed=st.integers(0, 10_000), count=st.integers(1, 6))
@settings(max_examples=20)
def test_weights_by_counts_only_are_known_without_posteriors(
    scheme: Weighting, seed: int, count: int
) -> None:
    """Bit for bit; and a client's γ does not depend on the others."""
    rng = np.random.default_rng(seed)
    examples = [int(n) for n in rng.integers(1, 100, count)]
    if not scheme.counts_only:
        with pytest.raises(AssertionError):
            scheme.weigh_counts(examples)
        return
    weights = weigh(scheme, clients(seed, count), examples, clients(seed + 1, 1)[0])
    np.testing.assert_array_equal(scheme.weigh_counts(examples), weights)
    alone = [scheme.gamma_of_count(n) for n in examples]
    np.testing.assert_array_equal(scheme.gamma((), examples, None), alone)


@EVERY
@pytest.mark.parametrize("count", [1, 2, 5])
def test_identical_clients_have_equal_weights(scheme: Weighting, count: int) -> None:
    one, previous = clients(0, 2, size=5000)
    weights = weigh(scheme, [one] * count, [7] * count, previous)
    np.testing.assert_allclose(weights, 1 / count, rtol=1e-9)
    weights = weigh(scheme, [previous] * count, [7] * count, previous)
    np.testing.assert_allclose(weights, 1 / count, rtol=1e-9)


@EVERY
def test_extreme_scales_give_finite_weights(scheme: Weighting) -> None:
    rng = np.random.default_rng(0)
    everyone = [
        Posterior(
            rng.normal(size=300).astype(np.float32),
            (10.0 ** rng.uniform(-16, 6, 300)).astype(np.float32),
        )
        for _ in range(4)
    ]
    for group in (everyone, [everyone[0], everyone[0], *everyone[1:]]):
        weights = weigh(scheme, group, [1] * len(group), everyone[0])
        assert np.all(np.isfinite(weights))
        assert weights.sum() == pytest.approx(1)


@EVERY
def test_what_is_missing_is_said(scheme: Weighting) -> None:
    everyone = clients(0, 2)
    with pytest.raises(ValueError, match="0 posteriors"):
        scheme.weigh([], [], everyone[0])
    with pytest.raises(ValueError, match="2 posteriors and 3 numbers"):
        scheme.weigh(everyone, [1, 1, 1], everyone[0])
    if scheme.requires_previous:
        with pytest.raises(ValueError, match="previous"):
            scheme.weigh(everyone, [1, 1], None)
    points = [Posterior(np.zeros(0), np.zeros(0), np.ones(3))] * 2
    if scheme.requires_gaussian:
        with pytest.raises(ValueError, match="points"):
            weigh(scheme, points, [1, 1], points[0])
        with pytest.raises(PosteriorError, match="expected 20"):
            scheme.weigh([everyone[0], clients(0, 1, size=3)[0]], [1, 1], everyone[0])
    else:
        assert weigh(scheme, points, [1, 1], points[0]).tolist() == [0.5, 0.5]


def test_train_size_is_the_share_of_the_examples() -> None:
    scheme = weightings.create("train-size")
    np.testing.assert_allclose(scheme.weigh(clients(0, 3), [30, 0, 70]), [0.3, 0, 0.7])
    with pytest.raises(ValueError, match="normalised"):
        scheme.weigh(clients(0, 2), [0, 0])
    with pytest.raises(ValueError, match="normalised"):
        scheme.weigh(clients(0, 2), [-1, 3])


@given(st.integers(0, 10_000), st.integers(2, 6))
@settings(max_examples=30)
def test_maximum_discrepancy_is_the_brute_force(seed: int, count: int) -> None:
    everyone = clients(seed, count)
    gamma = np.array([max(1 / kl(q, p) for p in everyone if p is not q) for q in everyone])
    weights = weightings.create("max-discrepancy").weigh(everyone, [1] * count)
    np.testing.assert_allclose(weights, gamma / gamma.sum(), rtol=1e-9)


@given(st.integers(0, 10_000), st.integers(1, 6))
@settings(max_examples=30)
def test_distance_is_the_brute_force(seed: int, count: int) -> None:
    previous, *everyone = clients(seed, count + 1)
    gamma = np.array([1 / kl(previous, client) for client in everyone])
    weights = weightings.create("distance").weigh(everyone, [1] * count, previous)
    np.testing.assert_allclose(weights, gamma / gamma.sum(), rtol=1e-9)


def test_clients_that_differ_by_less_than_rounding_have_equal_weights() -> None:
    # The matrix products leave noise of both signs where the divergence is 0.
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=20_000), rng.uniform(1e-4, 1e-2, 20_000)
    twins = [Posterior(mean, variance)] * 3
    pair = [Posterior(mean + shift, variance) for shift in (0.7, 0.7 + 1e-13)]
    weights = weightings.create("max-discrepancy").weigh([*twins, *pair], [1] * 5)
    assert np.all(weights > 0)
    np.testing.assert_allclose(weights[:3], weights[0], rtol=1e-9)
    np.testing.assert_allclose(weights[3:], weights[3], rtol=1e-9)
    # What cannot be told from 0 depends on where the clients lie, so groups are alike, not equal.
    assert 0.1 < weights[0] / weights[3] < 10


@pytest.mark.parametrize(
    "gamma",
    [np.ones(3) * (1 + 1j), np.ones((3, 1)), np.ones(2), np.ones(()), np.ones(3, bool)],
    ids=["complex", "two dimensions", "one fewer", "a number", "a mask"],
)
@pytest.mark.parametrize("counts", [True, False])
def test_what_a_scheme_of_ones_own_gives_is_checked(gamma, counts):
    """NumPy would drop imaginary parts."""

    class Wrong(type(weightings.create("equal"))):
        name = "wrong-weighting"

        def gamma(self, posteriors, num_examples, previous):
            return gamma

    posteriors = [Posterior(np.zeros(1), np.ones(1))] * 3
    with pytest.raises(ValueError, match=r"wrong-weighting gives .*; expected real numbers \(3,\)"):
        Wrong().weigh_counts([1, 2, 3]) if counts else Wrong().weigh(posteriors, [1, 2, 3])
