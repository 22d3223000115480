"""What each attack sends, and whom an echo of what was received deceives."""

import numpy as np
import pytest

from bfl import randomness
from bfl.aggregation.weightings import describe_weights, weightings
from bfl.federation.attacks import attacks
from bfl.posteriors import Posterior

D = 2000
RECEIVED = Posterior(np.zeros(D, np.float32), np.full(D, 0.04, np.float32), np.zeros(3, np.float32))


def learned(seed: int = 0) -> Posterior:
    rng = np.random.default_rng(seed)
    mean = (0.1 * rng.standard_normal(D)).astype(np.float32)
    variance = rng.uniform(0.02, 0.04, D).astype(np.float32)
    return Posterior(mean, variance, np.ones(3, np.float32))


def corrupt(name: str, **settings: float) -> Posterior:
    return attacks.create(name, settings).corrupt(
        learned(), RECEIVED, randomness.generator(0, "attack", 1, 0)
    )


@pytest.mark.parametrize("name", attacks.names())
def test_an_attack_looks_like_an_update(name: str) -> None:
    """Otherwise it would be refused, and no defence be needed; also of a network of points."""
    sent = corrupt(name)
    sent.check(like=RECEIVED)
    assert sent.mean.dtype == sent.variance.dtype == np.float32
    assert sent.digest() == corrupt(name).digest()
    assert (sent.digest() == learned().digest()) == (name == "none")
    empty = np.zeros(0, np.float32)
    points = Posterior(empty, empty, np.arange(5, dtype=np.float32))
    attacks.create(name).corrupt(points, points, np.random.default_rng(0)).check(like=points)


def test_what_the_attacks_do() -> None:
    assert np.array_equal(corrupt("sign-flip").mean, -learned().mean)
    assert np.std(corrupt("noise", **{"noise-scale": 3.0}).mean) == pytest.approx(3.0, rel=0.1)
    certain = corrupt("small-variance")
    np.testing.assert_allclose(certain.variance, 1e-6 * RECEIVED.variance, rtol=1e-6)
    assert abs(np.corrcoef(certain.mean, learned().mean)[0, 1]) < 0.15
    assert corrupt("echo").digest() == RECEIVED.digest()


@pytest.mark.parametrize(
    ("weighting", "echoes", "expected"),
    [
        ("distance", 1, [0, 0, 0, 1]),  # the papers' formula: divergence 0 from the fixed point
        ("max-discrepancy", 2, [0, 0, 0.5, 0.5]),
        ("equal", 1, [0.25] * 4),
        ("train-size", 1, [0.25] * 4),
    ],
)
def test_echoes_own_the_pool_where_weights_trust_the_nearest(weighting, echoes, expected) -> None:
    clients = [learned(k) for k in range(4 - echoes)] + [corrupt("echo")] * echoes
    weights = weightings.create(weighting).weigh(clients, [10] * 4, RECEIVED)
    np.testing.assert_allclose(weights, expected, atol=1e-9)
    effective = describe_weights(weights)["effective-clients"]
    assert effective == pytest.approx(1 / np.square(expected).sum(), abs=1e-6)
