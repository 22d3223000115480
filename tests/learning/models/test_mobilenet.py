"""MobileNetV2 against Keras' own, and what it has in each inference."""

import numpy as np
import pytest
from small_network import build

pytestmark = pytest.mark.usefixtures("tensorflow")

CIFAR, TINY_IMAGENET = (32, 32, 3), (64, 64, 3)
BIASES = 17_056
"""Channels of all convolutions."""


def mobilenet(inference="deterministic", shape=CIFAR, **settings):
    return build("mobilenetv2", inference, shape, **settings)


@pytest.mark.slow
def test_with_keras_weights_it_is_the_function_of_keras_own():
    from bfl.keras import keras

    keras.utils.set_random_seed(0)
    reference = keras.applications.MobileNetV2(
        CIFAR, weights=None, classes=10, classifier_activation=None
    )
    generator = np.random.default_rng(0)
    arrays = []
    for layer in reference.layers:
        weights = layer.get_weights()
        if isinstance(layer, keras.layers.BatchNormalization):
            weights = [generator.uniform(0.7, 1.3, w.shape).astype(np.float32) for w in weights]
            layer.set_weights(weights)
        elif len(weights) == 1:  # a convolution, which has no bias there
            depthwise = isinstance(layer, keras.layers.DepthwiseConv2D)
            weights.append(np.zeros(weights[0].shape[2 if depthwise else 3], np.float32))
        arrays += weights
    network = mobilenet()
    assert [p.shape for p in network.manifest] == [a.shape for a in arrays]
    point = np.concatenate([array.ravel() for array in arrays])
    network.load_values(network.manifest, np.zeros(0, np.float32), point)
    images = generator.uniform(-1, 1, (3, *CIFAR)).astype(np.float32)
    logits = network.logits(images, np.zeros(2, np.int32), training=False).numpy()
    np.testing.assert_allclose(logits, reference(images, training=False), rtol=1e-3, atol=1e-4)
    assert np.ptp(logits, axis=1).min() > 0.1
    # And of its size: Keras counts moving statistics as well.
    assert network.manifest.point_size == reference.count_params() + BIASES == 2_287_850


def test_all_but_normalization_and_depthwise_convolutions_is_gaussian():
    manifest = mobilenet("reparameterization").manifest
    points = {p.name.split("/")[0] for p in manifest.point}
    blocks = enumerate((1, 2, 3, 4, 3, 3, 1), start=2)
    depthwise = {f"conv{stage}_{n}b" for stage, number in blocks for n in range(1, number + 1)}
    assert {name for name in points if not name.endswith("_norm")} == depthwise
    assert manifest.gaussian_size + manifest.point_size == 2_287_850
    assert sum(p.size for p in manifest.point if p.name.split("/")[0] in depthwise) == 71_360


def test_a_depthwise_kernel_begins_with_the_variance_of_what_it_sees():
    network = mobilenet()
    values = network.manifest.split(network.initial_posterior(0).point, gaussian=False)
    by_name = dict(zip([p.name for p in network.manifest], values, strict=True))
    assert by_name["conv7_1b/kernel"].shape == (3, 3, 576, 1)
    assert by_name["conv7_1b/kernel"].std() == pytest.approx(np.sqrt(2 / 9), rel=0.05)
    assert by_name["conv9/kernel"].std() == pytest.approx(np.sqrt(2 / 320), rel=0.05)


@pytest.mark.parametrize(
    ("shape", "sides"), [(CIFAR, (16, 8, 4, 2, 1)), (TINY_IMAGENET, (32, 16, 8, 4, 2))]
)
def test_sides_of_images_of_32_and_64_pixels(shape, sides):
    model = mobilenet(shape=shape).model
    names = ("conv1_norm", "conv3_1c_norm", "conv4_1c_norm", "conv5_1c_norm", "conv9_norm")
    assert tuple(model.get_layer(name).output.shape[1] for name in names) == sides
