"""A difference of precisions that rounding on the way could have made belongs to no Gaussian."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bfl.aggregation.pooling import Pooled, pool, pooling_rules
from bfl.posteriors import Posterior

NEGATIVE, WIDER = "negative-precision-fraction", "wider-than-previous-fraction"
DWC = pooling_rules.create("dwc")


def exactly(posterior: Posterior) -> Posterior:
    """Return the posterior in float64."""
    vectors = (posterior.mean, posterior.variance, posterior.point)
    return Posterior(*(vector.astype(np.float64) for vector in vectors))


def consolidate(clients: list[Posterior], previous: Posterior) -> Pooled:
    return pool(DWC, clients, np.ones(len(clients)), previous=previous)


def below_the_limit(ulps: int, dtype: type = np.float32) -> tuple[list[Posterior], Posterior]:
    """Return two clients whose variances are so many ulps below twice the previous one."""
    old, limit = np.array([1.0], dtype), np.array([2.0], dtype)
    for _ in range(ulps):
        limit = np.nextafter(limit, np.zeros(1, dtype))
    clients = [Posterior(np.array([mean], dtype), limit) for mean in (0.3, 0.5)]
    return clients, Posterior(np.array([0.5], dtype), old)


@pytest.mark.parametrize(("apart", "usable"), [(2.0, False), (7.0, False), (9.0, True)])
def test_rounding_grows_with_the_clients(apart: float, usable: bool) -> None:
    """Of K clients, a difference of up to K ε of the precision has no sign."""
    count, epsilon = 8, float(np.finfo(np.float32).eps)
    clients = [Posterior(np.zeros(1, np.float32), np.ones(1, np.float32))] * count
    # In float64, as the previous variance would otherwise be off by a share of the difference.
    surplus = count * (1 - apart * epsilon)
    previous = Posterior(np.zeros(1), np.array([(count - 1) / surplus]), np.zeros(0, np.float32))
    assert consolidate(clients, previous).diagnostics[NEGATIVE] == (0.0 if usable else 1.0)


def test_the_precision_is_that_of_what_has_arrived() -> None:
    """One float32 among float64, client or previous, is as uncertain as all in float32."""
    wide, previous = below_the_limit(1)
    exact = [exactly(client) for client in wide]
    assert consolidate(exact, exactly(previous)).diagnostics[NEGATIVE] == 0.0
    assert consolidate([exact[0], wide[1]], exactly(previous)).diagnostics[NEGATIVE] == 1
    assert consolidate(exact, previous).diagnostics[NEGATIVE] == 1.0


@given(
    old=st.floats(1e-6, 1e3),
    shares=st.lists(st.floats(0.05, 1.0), min_size=2, max_size=8),
    beyond=st.floats(0.0, 1e-6),
)
@settings(max_examples=300, deadline=None)
def test_rounding_to_float32_never_makes_a_gaussian(
    old: float, shares: list[float], beyond: float
) -> None:
    """Precisions that sum to (K−1)/σ_o² or less still do after they were sent in float32."""
    count = len(shares)
    total = (count - 1) / old * (1 - beyond)
    precisions = total * np.array(shares) / sum(shares)
    clients = [
        Posterior(np.zeros(1, np.float32), np.array([1 / p], np.float32)) for p in precisions
    ]
    previous = Posterior(np.zeros(1, np.float32), np.array([old], np.float32))
    assert consolidate(clients, previous).diagnostics[NEGATIVE] == 1.0


@given(st.integers(0, 10_000), st.integers(2, 12))
@settings(max_examples=50, deadline=None)
def test_updates_in_float32_that_have_learned_are_not_touched(seed: int, count: int) -> None:
    """The guard must not reach honest clients, each somewhat more certain than its prior."""
    rng = np.random.default_rng(seed)
    previous = Posterior(np.zeros(50, np.float32), rng.uniform(1e-4, 1, 50).astype(np.float32))
    clients = [
        Posterior(
            rng.standard_normal(50, np.float32),
            (previous.variance * rng.uniform(0.9, 1, 50)).astype(np.float32),
        )
        for _ in range(count)
    ]
    pooled = consolidate(clients, previous)
    assert pooled.diagnostics[NEGATIVE] == pooled.diagnostics[WIDER] == 0.0


def test_what_is_wider_than_the_previous_posterior_is_reported() -> None:
    previous = Posterior(np.zeros(4, np.float32), np.ones(4, np.float32))
    variances = np.array([0.5, 1.0, 1.5, 1.9], np.float32)  # pooled: 1/3, 1, 3, 19
    clients = [Posterior(np.zeros(4, np.float32), variances)] * 2
    pooled = consolidate(clients, previous)
    np.testing.assert_allclose(pooled.posterior.variance, [1 / 3, 1, 3, 19], rtol=1e-5)
    assert pooled.diagnostics[WIDER] == 0.5
    assert pooled.diagnostics[NEGATIVE] == 0.0
