"""Sending back what was received: what it does to weightings that trust the nearest."""

import numpy as np
import pytest

from bfl.aggregation.weightings import describe_weights, weightings
from bfl.federation.attacks import attacks
from bfl.posteriors import Posterior

D = 2000
RECEIVED = Posterior(np.zeros(D, np.float32), np.full(D, 0.04, np.float32))


def learned(seed: int) -> Posterior:
    rng = np.random.default_rng(seed)
    return Posterior(
        (0.1 * rng.standard_normal(D)).astype(np.float32),
        rng.uniform(0.02, 0.04, D).astype(np.float32),
    )


def echoed(seed: int) -> Posterior:
    generator = np.random.default_rng(seed)
    return attacks.create("echo").corrupt(learned(seed), RECEIVED, generator)


def weights(name: str, clients: list[Posterior]) -> np.ndarray:
    return weightings.create(name).weigh(clients, [10] * len(clients), RECEIVED)


def test_what_was_received_is_sent() -> None:
    assert echoed(0).digest() == RECEIVED.digest()


def test_one_echo_owns_the_pool_under_distance() -> None:
    """The papers' formula: divergence 0 from the fixed point, so all of the weight."""
    got = weights("distance", [learned(0), learned(1), learned(2), echoed(3)])
    assert got[3] == pytest.approx(1.0, abs=1e-9)
    assert got[:3].max() < 1e-9
    assert describe_weights(got) == pytest.approx(
        {"effective-clients": 1.0, "largest-weight": 1.0}, abs=1e-6
    )


def test_two_echoes_own_the_pool_under_max_discrepancy() -> None:
    got = weights("max-discrepancy", [learned(0), learned(1), echoed(2), echoed(3)])
    np.testing.assert_allclose(got, [0, 0, 0.5, 0.5], atol=1e-9)
    assert describe_weights(got)["effective-clients"] == pytest.approx(2.0)


@pytest.mark.parametrize("name", ["equal", "train-size"])
def test_weights_by_counts_do_not_see_it(name: str) -> None:
    got = weights(name, [learned(0), learned(1), learned(2), echoed(3)])
    np.testing.assert_allclose(got, 0.25)
