"""The convolutional network of FedBE and HBFL against the papers' numbers."""

import pytest
from plain_in_numpy import build, check_forward_pass, shapes

from bfl.learning.models import architectures, create_architecture

pytestmark = pytest.mark.usefixtures("tensorflow")

CIFAR = (32, 32, 3)


def test_parameters_are_those_of_the_paper():
    network = build("convnet", "deterministic", CIFAR)
    assert shapes(network) == {
        "conv1/kernel": (3, 3, 3, 32),
        "conv1/bias": (32,),
        "conv2/kernel": (3, 3, 32, 64),
        "conv2/bias": (64,),
        "conv3/kernel": (3, 3, 64, 64),
        "conv3/bias": (64,),
        "dense1/kernel": (1024, 64),
        "dense1/bias": (64,),
        "logits/kernel": (64, 10),
        "logits/bias": (10,),
    }
    assert network.manifest.point_size == 122_570


@pytest.mark.parametrize("inference", ["flipout", "reparameterization"])
def test_each_parameter_can_be_gaussian(inference):
    manifest = build("convnet", inference, CIFAR).manifest
    assert (manifest.gaussian_size, manifest.point_size) == (122_570, 0)


def test_images_of_tiny_imagenet_and_the_smallest():
    # 64 - 62 - 31 - 29 - 14 - 12: 9,216 features.
    assert shapes(build("convnet", "deterministic", (64, 64, 3), 200))["dense1/kernel"][0] == 9216
    side = architectures.get("convnet").minimum_side
    assert shapes(build("convnet", "deterministic", (side, side, 1)))["dense1/kernel"][0] == 64
    with pytest.raises(ValueError, match=r"[Nn]egative dimension"):
        build("convnet", "deterministic", (side - 1, side - 1, 1))


@pytest.mark.parametrize("shape", [CIFAR, (19, 24, 2)])
def test_forward_pass_pools_after_the_first_two_convolutions(shape):
    check_forward_pass(build("convnet", "deterministic", shape), (True, True, False))


def test_extra_convolutions_keep_the_features_as_they_are():
    """Fig. 4 of FedBE: each adds 9 · 64² + 64 parameters, and the dense layers stay."""
    plain, deep = (
        shapes(build("convnet", "deterministic", CIFAR, **{"extra-convolutions": n}))
        for n in (0, 2)
    )
    added = {f"conv{n}/{part}" for n in (4, 5) for part in ("kernel", "bias")}
    assert deep.keys() - plain.keys() == added
    assert {name: deep[name] for name in plain} == plain
    assert deep["conv5/kernel"] == (3, 3, 64, 64)


def test_hbfl_calls_it_cnn2():
    assert isinstance(create_architecture("cnn2"), architectures.get("convnet"))
