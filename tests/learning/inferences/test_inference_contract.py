"""Every architecture exists in every inference, and which layers vary is a setting."""

import numpy as np
import pytest
from small_network import build

from bfl.learning.inferences import inferences
from bfl.posteriors import Posterior

pytestmark = pytest.mark.usefixtures("tensorflow")

WORDS = ("resnet8", "convolutional")
GAUSSIAN = [inference.name for inference in inferences.classes() if inference.gaussian]
SHAPE = (16, 16, 1)


@pytest.mark.parametrize("layers", ["all", "dense", "last"])
@pytest.mark.parametrize("inference", inferences.names())
@pytest.mark.parametrize("word", WORDS)
def test_without_variance_and_dropout_all_inferences_are_one_function(word, inference, layers):
    """Of the same parameters, of which only what varies differs."""
    points = build(word, "deterministic", SHAPE)
    network = build(word, inference, SHAPE, **{"variational-layers": layers, "dropout-rate": 0.0})
    assert [(p.name, p.shape) for p in network.manifest] == [
        (p.name, p.shape) for p in points.manifest
    ]
    rng, begun = np.random.default_rng(0), points.initial_posterior(0)
    moved = begun.point + rng.uniform(-0.1, 0.1, begun.point.size).astype(np.float32)
    points.load(Posterior(begun.mean, begun.variance, moved))
    parts = points.manifest.split(moved, gaussian=False)
    values = {p.name: part.ravel() for p, part in zip(points.manifest, parts, strict=True)}
    mean, point = (
        np.concatenate([np.zeros(0, np.float32), *(values[p.name] for p in parameters)])
        for parameters in (network.manifest.gaussian, network.manifest.point)
    )
    network.load(Posterior(mean, np.full(mean.size, 1e-12, np.float32), point))
    images = rng.uniform(-1, 1, (3, *SHAPE)).astype(np.float32)
    for training in (True, False):
        expected, found = (
            each.logits(images, np.array([1, 2], np.int32), training=training).numpy()
            for each in (points, network)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert np.abs(expected).max() > 0.1
    assert np.isfinite(float(network.divergence()))


@pytest.mark.parametrize("inference", GAUSSIAN)
@pytest.mark.parametrize("word", WORDS)
def test_dense_layers_or_the_last_alone_vary_on_demand(word, inference):
    gaussian = {}
    for layers in ("all", "dense", "last"):
        network = build(word, inference, SHAPE, **{"variational-layers": layers})
        gaussian[layers] = {p.name for p in network.manifest.gaussian}
    convolutions = {name for name in gaussian["all"] if name.startswith("conv")}
    assert convolutions
    assert gaussian["dense"] == gaussian["all"] - convolutions
    assert {"logits/kernel", "logits/bias"} == gaussian["last"] <= gaussian["dense"]


@pytest.mark.parametrize(("padding", "side"), [("same", 6), ("valid", 5)])
@pytest.mark.parametrize("layers", ["all", "dense"])
@pytest.mark.parametrize("inference", inferences.names())
def test_a_convolution_pads_as_asked(inference, layers, padding, side):
    """Strides of 2 over 12 pixels with a kernel of 3: 6 places with zeros around, 5 without."""
    chosen = inferences.create(inference, {"variational-layers": layers})
    layer = chosen.convolution(4, 3, strides=2, name="convolution", padding=padding)
    assert layer(np.zeros((2, 12, 12, 3), np.float32)).shape == (2, side, side, 4)
    kept = chosen.convolution(4, 3, strides=2, name="convolution")
    assert kept(np.zeros((2, 12, 12, 3), np.float32)).shape == (2, 6, 6, 4)
