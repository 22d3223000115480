import numpy as np
import pytest

from bfl import randomness
from bfl.federation.attacks import attacks
from bfl.posteriors import Posterior

LEARNED = Posterior(
    np.linspace(-1, 1, 1000, dtype=np.float32),
    np.full(1000, 0.04, np.float32),
    np.ones(3, np.float32),
)
RECEIVED = Posterior(np.zeros(1000, np.float32), np.ones(1000, np.float32), np.zeros(3, np.float32))


def corrupt(name: str, **settings: float) -> Posterior:
    return attacks.create(name, settings).corrupt(
        LEARNED, RECEIVED, randomness.generator(0, "attack", 1, 0)
    )


@pytest.mark.parametrize("name", attacks.names())
def test_an_attack_looks_like_an_update(name: str) -> None:
    """Otherwise it would be refused, and no defence be needed."""
    sent = corrupt(name)
    sent.check(like=LEARNED)
    assert sent.mean.dtype == sent.variance.dtype == np.float32
    assert sent.digest() == corrupt(name).digest()
    assert (sent.digest() == LEARNED.digest()) == (name == "none")


@pytest.mark.parametrize("name", attacks.names())
def test_networks_of_points_can_be_attacked(name: str) -> None:
    empty = np.zeros(0, np.float32)
    points = Posterior(empty, empty, np.arange(5, dtype=np.float32))
    sent = attacks.create(name).corrupt(points, points, np.random.default_rng(0))
    sent.check(like=points)


def test_what_the_attacks_do() -> None:
    assert np.array_equal(corrupt("sign-flip").mean, -LEARNED.mean)
    assert np.std(corrupt("noise", **{"noise-scale": 3.0}).mean) == pytest.approx(3.0, rel=0.1)
    certain = corrupt("small-variance", **{"attack-scale": 1e-5})
    np.testing.assert_allclose(certain.variance, 1e-10 * RECEIVED.variance, rtol=1e-6)
    assert abs(np.corrcoef(certain.mean, LEARNED.mean)[0, 1]) < 0.15
