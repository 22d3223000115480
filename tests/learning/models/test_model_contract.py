"""What every registered model promises, with every inference."""

import numpy as np
import pytest

from bfl.errors import ConfigurationError
from bfl.learning.inferences import inferences
from bfl.learning.models import architectures
from bfl.learning.shared import Convolutions

pytestmark = pytest.mark.usefixtures("tensorflow")

CLASSES = 3


def word(name):
    """Return what picks a family in its smallest depth."""
    if "depth" not in architectures.get(name).model_fields:
        return name
    for depth in range(1, 200):
        try:
            architectures.create(f"{name}{depth}")
        except (ConfigurationError, ValueError):
            continue
        return f"{name}{depth}"
    raise AssertionError(f"{name} has no depth below 200")


def cases():
    """Yield every model with every inference; a deep one is quick with points alone."""
    for name in architectures.names():
        for inference in inferences.names():
            deep = name == "mobilenet-v2" and inference != "deterministic"
            yield pytest.param(inference, name, marks=[pytest.mark.long] if deep else [])


@pytest.mark.parametrize(("inference", "name"), cases())
def test_every_model_gives_logits_and_has_a_sound_initial_posterior(name, inference):
    from bfl.learning.networks.network import build_network

    architecture = architectures.create(word(name))
    side = max(architecture.minimum_side, 8)
    network = build_network(architecture, inferences.create(inference), (side, side, 2), CLASSES)
    shared = Convolutions().travels(network.manifest.parameters)
    assert ("convolutions" in architecture.has()) == any(shared)
    posterior = network.initial_posterior(0)
    posterior.check()
    assert posterior.digest() == network.initial_posterior(0).digest()
    assert posterior.digest() != network.initial_posterior(1).digest()
    network.load(posterior)
    images = np.random.default_rng(0).uniform(-1, 1, (4, side, side, 2)).astype(np.float32)
    logits = network.logits(images, np.array([1, 2], np.int32), training=True).numpy()
    assert logits.shape == (4, CLASSES)
    assert np.isfinite(logits).all()
