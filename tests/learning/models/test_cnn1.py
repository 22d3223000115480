"""The smaller convolutional network of HBFL, and what it shares with LeNet5."""

import pytest
from plain_in_numpy import build, check_forward_pass, shapes

pytestmark = pytest.mark.usefixtures("tensorflow")

CIFAR = (32, 32, 3)


def test_size():
    # 456 + 2,416 of the convolutions, 400 x 120 + 120, 120 x 10 + 10.
    assert build("cnn1", "deterministic", CIFAR).manifest.point_size == 52_202
    assert build("cnn1", "flipout", CIFAR).manifest.gaussian_size == 52_202


def test_its_convolutions_are_those_of_lenet5_under_the_same_names():
    first, second = (shapes(build(word, "deterministic", CIFAR)) for word in ("cnn1", "lenet5"))
    convolutions = {f"conv{index}/{part}" for index in (1, 2) for part in ("kernel", "bias")}
    assert {name for name in first if first[name] == second.get(name)} >= convolutions
    assert set(second) - set(first) == {"dense2/kernel", "dense2/bias"}


def test_forward_pass():
    check_forward_pass(build("cnn1", "deterministic", (17, 22, 2)), (True, True))
