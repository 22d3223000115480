"""Batch and group normalisation in residual networks."""

import numpy as np
import pytest
from small_network import build

pytestmark = pytest.mark.usefixtures("tensorflow")
SHAPE = (8, 8, 1)
GROUPED = {"normalization": "group"}


def resnet8(inference="deterministic", **settings):
    return build("resnet8", inference, classes=3, **settings)


@pytest.mark.parametrize("inference", ["deterministic", "flipout", "mc-dropout"])
def test_group_normalization_has_scales_and_offsets_alone(inference):
    network, batch = resnet8(inference, **GROUPED), resnet8(inference)
    moving = [p for p in batch.manifest if "moving" in p.name]
    assert [p for p in batch.manifest if p not in moving] == list(network.manifest)
    # 16 + 2 * (16 + 32 + 64) channels, and no inference makes these parameters Gaussian.
    assert network.manifest.point_size == batch.manifest.point_size - 2 * 240
    assert {p.name for p in network.manifest.point} >= {"conv1_norm/scale", "conv4_1b_norm/offset"}
    posterior = network.initial_posterior(3)
    network.load(posterior)
    np.testing.assert_array_equal(network.posterior().point, posterior.point)
    assert network.manifest.trainable_points.all()


def test_each_group_of_channels_of_each_image_is_normalized_by_itself():
    layer = resnet8(**GROUPED).model.get_layer("conv3_1a_norm")
    features = np.random.default_rng(0).normal(2, 3, (5, 4, 4, 32)).astype(np.float32)
    grouped = features.reshape(5, 4, 4, 8, 4)
    mean = grouped.mean(axis=(1, 2, 4), keepdims=True)
    variance = grouped.var(axis=(1, 2, 4), keepdims=True)
    expected = ((grouped - mean) / np.sqrt(variance + 1e-3)).reshape(features.shape)
    np.testing.assert_allclose(layer(features), expected, atol=1e-4)


def test_sums_are_float32_where_activations_are_bfloat16():
    network = resnet8(precision="bfloat16", **GROUPED)
    layer = network.model.get_layer("conv1_norm")
    assert layer.compute_dtype == "float32"
    assert network.model.get_layer("conv1").compute_dtype == "bfloat16"
    images = np.random.default_rng(0).uniform(-1, 1, (4, *SHAPE)).astype(np.float32)
    exact = resnet8(**GROUPED)
    posterior = exact.initial_posterior(0)
    logits = []
    for one in (network, exact):
        one.load(posterior)
        logits.append(one.logits(images, np.zeros(2, np.int32), training=True).numpy())
    np.testing.assert_allclose(logits[0], logits[1], atol=0.1)
