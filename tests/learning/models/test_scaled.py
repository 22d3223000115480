"""The range in which networks take their images."""

import numpy as np
import pydantic
import pytest
from small_network import build

from bfl.errors import ConfigurationError
from bfl.learning.models import architectures

MEANS, DEVIATIONS = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
CIFAR10 = {
    "input-range": "channels",
    "channel-means": ",".join(map(str, MEANS)),
    "channel-deviations": ",".join(map(str, DEVIATIONS)),
}


def network(word, settings, channels=3):
    return build(word, "deterministic", (8, 8, channels), 3, **settings)


@pytest.mark.usefixtures("tensorflow")
@pytest.mark.parametrize("word", ["mlp", "resnet8"])
@pytest.mark.parametrize(
    ("settings", "means", "deviations"),
    [(CIFAR10, MEANS, DEVIATIONS), ({"input-range": "unit"}, 0.0, 1.0)],
    ids=["channels", "unit"],
)
def test_channels_are_normalised_as_torchvision_does_it(word, settings, means, deviations):
    """In training and in prediction: (v − m) / s of v in [0, 1]."""
    from bfl.evaluation.prediction.monte_carlo import Predictor
    from bfl.learning.networks.network import normalized_images

    plain, scaled = network(word, {}), network(word, settings)
    assert plain.manifest == scaled.manifest
    posterior = plain.initial_posterior(0)
    pixels = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3)).astype(np.uint8)
    inputs = ((pixels / 255 - means) / deviations).astype(np.float32)
    key = np.array([1, 2], np.int32)
    for training in (False, True):
        for each in (plain, scaled):
            each.load(posterior)
        expected = plain.logits(inputs, key, training=training).numpy()
        found = scaled.logits(normalized_images(pixels), key, training=training).numpy()
        np.testing.assert_allclose(found, expected, atol=1e-4)
        other = plain.logits(normalized_images(pixels), key, training=training).numpy()
        assert np.abs(other - found).max() > 0.01
    for each in (plain, scaled):
        each.load(posterior)
    predictor = Predictor(scaled, architectures.create(word, settings))
    found = predictor.logits(posterior.mean, posterior.point, pixels, 0, ("test",))
    np.testing.assert_allclose(found, plain.logits(inputs, key, training=False), atol=1e-4)


@pytest.mark.usefixtures("tensorflow")
def test_a_number_for_another_number_of_channels_is_refused():
    with pytest.raises(ConfigurationError, match="of 3 channels, and the images have 1"):
        network("mlp", CIFAR10, channels=1)
    one = {"channel-means": "0.1307", "channel-deviations": "0.3081"}
    network("mlp", {**CIFAR10, **one}, channels=2)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"channel-means": ""}, "and so channel-means"),
        ({"channel-deviations": ""}, "as input-range is 'channels'"),
        ({"channel-deviations": "0.2"}, "as many numbers as channel-means has"),
        ({"channel-deviations": "0.2,0,0.2"}, "greater than 0"),
        ({"channel-means": "0.5,0.5,128"}, r"numbers in \[0, 1\]"),
        ({"channel-means": "0.5;0.5;0.5"}, r"numbers in \[0, 1\]"),
        ({"input-range": "symmetric"}, "not given, nor channel-means"),
    ],
)
def test_what_does_not_go_together_is_refused(changes, said):
    with pytest.raises(pydantic.ValidationError, match=said):
        architectures.create("resnet8", {**CIFAR10, **changes})
