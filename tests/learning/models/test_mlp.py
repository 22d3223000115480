"""The multilayer perceptron."""

import pytest
from plain_in_numpy import build, check_forward_pass

pytestmark = pytest.mark.usefixtures("tensorflow")


@pytest.mark.parametrize(
    ("shape", "size"), [((28, 28, 1), 199_210), ((32, 32, 1), 247_210), ((32, 32, 3), 656_810)]
)
def test_size(shape, size):
    # McMahan et al. (2017) give 199,210 for images of MNIST.
    assert build("mlp", "deterministic", shape).manifest.point_size == size
    assert build("mlp", "flipout", shape).manifest.gaussian_size == size


def test_forward_pass():
    check_forward_pass(build("mlp", "deterministic", (5, 4, 2)), ())
