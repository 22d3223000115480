"""The residual network against the paper's numbers and a forward pass written out in NumPy."""

from itertools import pairwise

import numpy as np
import pydantic
import pytest
from small_network import build

from bfl.errors import ConfigurationError
from bfl.learning.models import architectures
from bfl.posteriors import Posterior

pytestmark = pytest.mark.usefixtures("tensorflow")

SMALL = (8, 8, 1)


def count_weights(n, channels, classes, *, biases):
    """Weights of the convolutions and the dense layer of a ResNet of depth 6n + 2."""

    def convolution(fan_in, fan_out):
        return 9 * fan_in * fan_out + (fan_out if biases else 0)

    total = convolution(channels, 16) + 64 * classes + classes
    for before, filters in pairwise((16, 16, 32, 64)):
        total += convolution(before, filters) + (2 * n - 1) * convolution(filters, filters)
    return total


def count_normalized(n):
    """Channels that are batch-normalised: one for each filter of each convolution."""
    return 16 + 2 * n * (16 + 32 + 64)


def trainable_size(network):
    return sum(int(np.prod(v.shape)) for v in network.trainable_variables)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "shape", "classes"), [(1, (64, 64, 3), 200), (3, SMALL, 7)])
def test_parameter_counts(n, shape, classes):
    weights = count_weights(n, shape[2], classes, biases=True)
    normalized = count_normalized(n)
    flipout = build(f"resnet{6 * n + 2}", "flipout", shape, classes)
    assert flipout.manifest.gaussian_size == weights
    assert flipout.manifest.point_size == 4 * normalized
    assert trainable_size(flipout) == 2 * weights + 2 * normalized
    for inference in ("deterministic", "mc-dropout"):
        points = build(f"resnet{6 * n + 2}", inference, shape, classes)
        assert points.manifest.gaussian_size == 0
        assert points.manifest.point_size == weights + 4 * normalized
        assert trainable_size(points) == weights + 2 * normalized
        assert [(p.name, p.shape, p.initialization) for p in points.manifest] == [
            (p.name, p.shape, p.initialization) for p in flipout.manifest
        ]


def test_every_kernel_and_bias_is_variational_and_only_normalization_is_not():
    manifest = build("resnet8", "flipout").manifest
    layers = ["conv1", *(f"conv{s}_1{half}" for s in (2, 3, 4) for half in "ab"), "logits"]
    assert {p.name for p in manifest.gaussian} == {
        f"{layer}/{part}" for layer in layers for part in ("kernel", "bias")
    }
    assert {p.name for p in manifest.point} == {
        f"{layer}_norm/{part}"
        for layer in layers[:-1]
        for part in ("scale", "offset", "moving_mean", "moving_variance")
    }


def forward_in_numpy(parameters, images, n):
    """Logits of a ResNet of depth 6n + 2 in prediction, from its named parameters."""

    def convolution(x, name, strides=1):
        kernel, bias = parameters[f"{name}/kernel"], parameters[f"{name}/bias"]
        # Padded to keep the size; the odd pixel of a strided one goes to the end.
        total = [max((-(-s // strides) - 1) * strides + 3 - s, 0) for s in x.shape[1:3]]
        x = np.pad(x, [(0, 0), *((t // 2, t - t // 2) for t in total), (0, 0)])
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
        return np.einsum("nhwcij,ijco->nhwo", windows[:, ::strides, ::strides], kernel) + bias

    def normalization(x, name):
        scale, offset, mean, variance = (
            parameters[f"{name}_norm/{part}"]
            for part in ("scale", "offset", "moving_mean", "moving_variance")
        )
        return (x - mean) / np.sqrt(variance + 1e-3) * scale + offset

    def relu(x):
        return np.maximum(x, 0)

    x = relu(normalization(convolution(images, "conv1"), "conv1"))
    for stage, filters in ((2, 16), (3, 32), (4, 64)):
        for block in range(1, n + 1):
            name, strides = f"conv{stage}_{block}", 2 if stage > 2 and block == 1 else 1
            inner = relu(normalization(convolution(x, f"{name}a", strides), f"{name}a"))
            inner = normalization(convolution(inner, f"{name}b"), f"{name}b")
            new = (filters - x.shape[-1]) // 2
            shortcut = np.pad(x[:, ::strides, ::strides], [(0, 0)] * 3 + [(new, new)])
            x = relu(shortcut + inner)
    return x.mean(axis=(1, 2)) @ parameters["logits/kernel"] + parameters["logits/bias"]


@pytest.mark.parametrize(("n", "shape"), [(1, SMALL), (1, (9, 12, 3)), (3, SMALL)])
def test_forward_pass_is_that_of_the_paper(n, shape):
    network = build(f"resnet{6 * n + 2}", "deterministic", shape)
    begun = network.initial_posterior(n)
    # Parameters that all matter: no 0, no 1, nothing negative where it must not be.
    point = begun.point + np.random.default_rng(n).uniform(-0.3, 0.3, begun.point.size)
    posterior = Posterior(begun.mean, begun.variance, point.astype(np.float32))
    network.load(posterior)
    images = np.random.default_rng(1).uniform(-1, 1, (3, *shape)).astype(np.float32)
    logits = network.logits(images, np.zeros(2, np.int32), training=False).numpy()
    parameters = {
        p.name: values.astype(np.float64)
        for p, values in zip(
            network.manifest, network.manifest.split(posterior.point, gaussian=False), strict=True
        )
    }
    expected = forward_in_numpy(parameters, images.astype(np.float64), n)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


def layers_after(layer):
    return [node.layer for node in layer.outbound_nodes]


@pytest.mark.parametrize("n", [1, 3])
def test_dropout_follows_every_convolution_and_dense_layer(n):
    from bfl.keras import keras
    from bfl.learning.networks.layers import KeyedDropout

    model = build(f"resnet{6 * n + 2}", "mc-dropout", SMALL, **{"dropout-rate": 0.3}).model
    dropouts = [layer for layer in model.layers if isinstance(layer, KeyedDropout)]
    weighted = [
        la for la in model.layers if isinstance(la, keras.layers.Conv2D | keras.layers.Dense)
    ]
    assert len(weighted) == 2 * 3 * n + 1 + 1
    assert {dropout.rate for dropout in dropouts} == {0.3}
    assert [layers_after(layer) for layer in weighted] == [[dropout] for dropout in dropouts]


@pytest.mark.parametrize(
    ("word", "depth"),
    [("resnet", 20), ("resnet20", 20), ("resnet-32", 32), (" ResNet8 ", 8), ("resnet110", 110)],
)
def test_words_of_known_networks(word, depth):
    architecture = architectures.create(word)
    assert isinstance(architecture, architectures.get("resnet"))
    assert architecture.depth == depth
    if word not in ("resnet", "resnet20"):  # a word wins over a depth in the settings
        assert architectures.create(word, {"depth": 20, "prior-scale": 1.0}).depth == depth


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("resnet21", "nearest: resnet20, resnet26"),
        ("resnet19", "nearest: resnet14, resnet20"),
        ("resnet2", "greater than or equal to 8"),
        ("resnt20", "'resnt20'; did you mean 'resnet20'"),
        *((w, r"unknown model .*allowed: .*resnet") for w in ("resnt", "densenet121", "20", "")),
        ("resnet20x", r"unknown model .*allowed: .*resnet"),
        ("convolutional5", "'convolutional' comes in one depth only"),
        ("vgg16", r"allowed: .*convolutional.*resnet16"),
        ("lenet4", "'lenet4'; did you mean 'lenet5'"),
    ],
)
def test_words_of_no_network_are_refused(word, message):
    with pytest.raises((pydantic.ValidationError, ConfigurationError), match=message):
        architectures.create(word)
