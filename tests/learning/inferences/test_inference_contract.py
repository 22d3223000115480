"""Every architecture exists in every inference, and which layers vary is a setting."""

import numpy as np
import pytest

from bfl.learning.inferences import inferences
from bfl.learning.models import create_architecture

pytestmark = pytest.mark.usefixtures("tensorflow")

WORDS = ("resnet8", "convolutional")
GAUSSIAN = [inference.name for inference in inferences.classes() if inference.gaussian]
SHAPE = (16, 16, 1)


def build(word, inference, **settings):
    from bfl.learning.networks.network import build_network

    chosen = inferences.create(inference, settings)
    return build_network(create_architecture(word), chosen, SHAPE, 10)


@pytest.mark.parametrize("layers", ["all", "dense", "last"])
@pytest.mark.parametrize("inference", inferences.names())
@pytest.mark.parametrize("word", WORDS)
def test_every_architecture_has_every_inference(word, inference, layers):
    network = build(word, inference, **{"variational-layers": layers})
    network.load(network.initial_posterior(0))
    images = np.random.default_rng(0).uniform(-1, 1, (3, *SHAPE)).astype(np.float32)
    logits = network.logits(images, np.array([1, 2], np.int32), training=True).numpy()
    assert logits.shape == (3, 10)
    assert np.isfinite(logits).all()
    assert np.isfinite(float(network.divergence()))
    # The same parameters whatever the inference: only which of them vary differs.
    points = build(word, "deterministic")
    assert [(p.name, p.shape) for p in network.manifest] == [
        (p.name, p.shape) for p in points.manifest
    ]


@pytest.mark.parametrize("inference", GAUSSIAN)
@pytest.mark.parametrize("word", WORDS)
def test_dense_layers_or_the_last_alone_vary_on_demand(word, inference):
    gaussian = {
        layers: {
            p.name
            for p in build(word, inference, **{"variational-layers": layers}).manifest.gaussian
        }
        for layers in ("all", "dense", "last")
    }
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


@pytest.mark.parametrize("inference", GAUSSIAN)
def test_an_inference_goes_by_its_names(inference):
    for alias in inferences.get(inference).aliases:
        assert inferences.get(alias) is inferences.get(inference)
