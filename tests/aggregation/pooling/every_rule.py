"""Every registered pooling rule, and clients pooled by it, for what all rules promise."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import strategies as st

from bfl.aggregation.pooling import Pooled, PoolingRule, pool, pooling_rules
from bfl.posteriors import Posterior

WITHOUT_CLAMPS = {
    name: {"partial-sum-clamp": 0.0}
    for name in ("clamped-naive-weighted-averaging", "clamped-weighted-sum-of-normals")
}
"""A clamp makes small and large variances others than the rule's: it has tests of its own."""
EVERY = pytest.mark.parametrize(
    "rule",
    [pooling_rules.create(name, WITHOUT_CLAMPS.get(name)) for name in pooling_rules.names()],
    ids=lambda r: r.name,
)
SEEDS = st.integers(0, 100_000)


def make_clients(
    seed: int,
    count: int,
    size: int = 37,
    scales: tuple[float, float] = (1e-8, 1e3),
    dtype: type = np.float64,
) -> list[Posterior]:
    """Return clients, read-only: nothing may change what it is given."""
    rng = np.random.default_rng(seed)
    low, high = np.log(scales)
    made = []
    for k in range(count):
        vectors = (
            # No two clients' means nearly coincide: the rounding of a disagreement is relative
            # to the distance from the reference, and has a test of its own.
            rng.uniform(-0.4, 0.4, size) + k - count / 2,
            np.exp(2 * rng.uniform(low, high, size)),
            rng.normal(size=5),
        )
        posterior = Posterior(*(vector.astype(dtype) for vector in vectors))
        for vector in (posterior.mean, posterior.variance, posterior.point):
            vector.setflags(write=False)
        made.append(posterior)
    return made


def generators(count: int) -> list[np.random.Generator]:
    return [np.random.Generator(np.random.Philox(k)) for k in range(count)]


def draw_weights(seed: int, count: int) -> npt.NDArray[np.float64]:
    weights = np.exp(np.random.default_rng(seed).uniform(-2, 2, count))
    return weights / weights.sum()


def pool_all(
    rule: PoolingRule,
    clients: Sequence[Posterior],
    weights: Sequence[float] | npt.NDArray[np.float64],
    previous: Posterior | None = None,
) -> Pooled:
    return pool(rule, clients, weights, previous=previous, generators=generators(len(clients)))


def assert_same(got: Pooled, expected: Pooled, rtol: float = 1e-9) -> None:
    # A mean that lies near 0 has an error that is relative to the clients' means, about 1.
    a, b = got.posterior, expected.posterior
    np.testing.assert_allclose(a.mean, b.mean, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(a.variance, b.variance, rtol=rtol)
    np.testing.assert_allclose(a.point, b.point, rtol=rtol, atol=rtol)
    assert got.diagnostics == pytest.approx(expected.diagnostics, rel=rtol)


def assert_identical(got: Pooled, expected: Pooled) -> None:
    for name in ("mean", "variance", "point"):
        a, b = getattr(got.posterior, name), getattr(expected.posterior, name)
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()
    assert got.diagnostics == expected.diagnostics
