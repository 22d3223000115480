"""Data sets whose images are resized, such as the server's from another domain."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bfl.configuration import resolve
from bfl.data.datasets import load_dataset
from bfl.data.datasets.server_data import load_server_data
from bfl.errors import ConfigurationError, DataError


@pytest.mark.parametrize(
    ("size", "shape"), [("4", (4, 4, 1)), ("4x6", (4, 6, 1)), ("16x16x3", (16, 16, 3))]
)
def test_images_have_the_size_and_labels_stay(size: str, shape: tuple[int, ...]) -> None:
    digits, other = load_dataset("digits"), load_dataset(f"resized:{size}:digits")
    other.check()
    assert other.image_shape == shape
    np.testing.assert_array_equal(other.train_labels, digits.train_labels)
    np.testing.assert_array_equal(other.test_labels, digits.test_labels)
    # About as bright as before, image by image.
    means = [d.test_images.mean(axis=(1, 2, 3)) for d in (digits, other)]
    assert np.corrcoef(*means)[0, 1] > 0.95


def test_smaller_pixels_are_means() -> None:
    digits, half = load_dataset("digits"), load_dataset("resized:4:digits")
    means = digits.train_images.reshape(-1, 4, 2, 4, 2, 1).mean(axis=(2, 4))
    assert np.abs(half.train_images - means).max() <= 0.5


def test_another_domain_serves_as_the_servers_own_images(tmp_path: Path) -> None:
    """Colours of 64 by 64 pixels for a run on grey images of 8 by 8."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (40, 64, 64, 3), dtype=np.uint8)
    labels = np.arange(40) % 10
    np.savez(tmp_path / "far.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    digits = load_dataset("digits")
    given: dict[str, Any] = {"examples": 0.0, "train_examples": 0.0, "clients": 3, "seed": 0}
    given["data_dir"] = str(tmp_path)
    with pytest.raises(ConfigurationError, match=r"images of \(64, 64, 3\)"):
        load_server_data("npz:far.npz", digits, **given)
    own = load_server_data("resized:8x8x1:npz:far.npz", digits, **given)
    assert own is not None
    assert own.images.shape == (40, 8, 8, 1)
    configuration = resolve({"server-data": "resized:8x8x1:npz:far.npz", "data-dir": str(tmp_path)})
    assert configuration.keys.server_data == f"resized:8x8x1:npz:{tmp_path / 'far.npz'}"


@pytest.mark.parametrize("size", ["0", "8x", "8x8x2", "8x8x3x1", "eight", "-4", ""])
def test_other_sizes_are_refused(size: str) -> None:
    with pytest.raises(ConfigurationError, match=r"as in 'resized:32x32x3:mnist'"):
        resolve({"dataset": f"resized:{size}:digits"})


def test_channels_that_cannot_be_made_are_refused(tmp_path: Path) -> None:
    images, labels = np.zeros((2, 4, 4, 2), np.uint8), np.arange(2)
    np.savez(tmp_path / "two.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    with pytest.raises(DataError, match="images of 2 channels cannot be made into images of 3"):
        load_dataset("resized:4x4x3:npz:two.npz", tmp_path)
