"""The part of Tiny-ImageNet, on an archive made in its format, and partitions of sorted data."""

from pathlib import Path

import numpy as np
import pytest

from bfl.configuration import resolve
from bfl.data.datasets import Reading, load_dataset
from bfl.errors import ConfigurationError

CLASSES = 200


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    labels = generator.permutation(np.repeat(np.arange(CLASSES), 2))
    images = generator.integers(0, 256, (labels.size, 64, 64, 3), dtype=np.uint8)
    np.savez(
        tmp_path / "tiny_imagenet200_subset.npz",
        x_train=images,
        y_train=labels,
        x_test=images[:20],
        y_test=labels[:20],
    )
    return tmp_path


def test_it_is_an_archive_of_images_of_64_pixels(folder: Path) -> None:
    dataset = load_dataset("tiny-imagenet200-subset", folder)
    assert dataset.image_shape == (64, 64, 3)
    assert dataset.num_classes == CLASSES
    small = load_dataset("tiny-imagenet-subset", folder, Reading(32))
    assert small.image_shape == (32, 32, 3)
    means = dataset.test_images.reshape(20, 32, 2, 32, 2, 3).mean(axis=(2, 4))
    assert np.abs(small.test_images - means).max() <= 0.5


def test_it_is_not_on_the_hub(tmp_path: Path) -> None:
    for given in ({}, {"data-dir": str(tmp_path)}):
        with pytest.raises(ConfigurationError) as error:
            resolve({"dataset": "tiny-imagenet200-subset", **given})
        assert "it is not on the Hugging Face hub" in str(error.value)
        assert "x_train" in str(error.value)
