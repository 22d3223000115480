"""Computing in bfloat16: the same network, parameters in float32, logits a little rounder."""

import numpy as np
import pytest
from one_layer import posterior_of
from small_network import build

from bfl.learning.inferences import inferences

pytestmark = pytest.mark.usefixtures("tensorflow")

SHAPE = (8, 8, 3)
RNG = np.random.default_rng(0)
IMAGES = RNG.uniform(-1, 1, (16, *SHAPE)).astype(np.float32)
KEY = np.array([3, 4], np.int32)


@pytest.mark.parametrize("inference", inferences.names())
def test_logits_differ_by_rounding_only(inference):
    logits = {}
    for precision in ("float32", "bfloat16"):
        network = build("resnet8", inference, SHAPE, precision=precision)
        network.load(posterior_of(network, 1, 0.1, 0.1))
        logits[precision] = np.asarray(network.logits(IMAGES, KEY, training=True))
    assert logits["bfloat16"].dtype == np.float32
    scale = np.abs(logits["float32"]).max()
    difference = np.abs(logits["bfloat16"] - logits["float32"]).max() / scale
    # bfloat16 has 8 bits: not the same, and not another network.
    assert 0 < difference < 0.1


@pytest.mark.parametrize("inference", inferences.names())
def test_parameters_stay_in_float32(inference):
    network = build("resnet8", inference, SHAPE, precision="bfloat16")
    assert {str(weight.dtype) for weight in network.model.weights} == {"<dtype: 'float32'>"}
    posterior = posterior_of(network, 1, 0.1, 0.1)
    network.load(posterior)
    np.testing.assert_array_equal(network.posterior().mean, posterior.mean)
    np.testing.assert_array_equal(network.posterior().point, posterior.point)
