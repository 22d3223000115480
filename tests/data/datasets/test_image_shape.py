"""Images that a run brings into another size, or other channels, by keys of its own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bfl.configuration import resolve
from bfl.data.datasets import Reading, load_dataset
from bfl.errors import ConfigurationError, DataError


@pytest.mark.parametrize(
    ("keys", "shape"),
    [
        ({}, (8, 8, 1)),
        ({"image-size": 4}, (4, 4, 1)),
        ({"image-size": 16, "image-channels": 3}, (16, 16, 3)),
        ({"image-channels": 3}, (8, 8, 3)),
        ({"image-size": 12, "image-fit": "pad"}, (12, 12, 1)),
    ],
)
def test_images_have_the_shape_and_labels_stay(keys: dict[str, Any], shape: tuple[int]) -> None:
    wanted = resolve(keys).keys.reading
    assert Reading.of(wanted.values()) == wanted
    digits, other = load_dataset("digits"), load_dataset("digits", "", wanted)
    other.check()
    assert other.image_shape == shape
    assert other.class_names == digits.class_names
    np.testing.assert_array_equal(other.train_labels, digits.train_labels)
    np.testing.assert_array_equal(other.test_labels, digits.test_labels)
    if wanted.image_fit == "pad":
        np.testing.assert_array_equal(other.train_images[:, 2:-2, 2:-2], digits.train_images)
    # About as bright as before, image by image.
    means = [d.test_images.mean(axis=(1, 2, 3)) for d in (digits, other)]
    assert np.corrcoef(*means)[0, 1] > 0.7


def test_images_that_cannot_be_made_are_refused(tmp_path: Path) -> None:
    images, labels = np.zeros((2, 6, 6, 2), np.uint8), np.arange(2)
    arrays = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}
    np.savez(tmp_path / "two.npz", **arrays)
    with pytest.raises(DataError, match=r"image-size 7.* images of 8 x 8 .* padded to 7"):
        load_dataset("digits", "", Reading(7, image_fit="pad"))
    with pytest.raises(DataError, match="images of 2 channels"):
        load_dataset("npz:two.npz", tmp_path, Reading(image_channels=3))


@pytest.mark.parametrize(
    "given",
    ["1:1", "2:1", "0:inf", "nan:1", "-1e308:1e308", "0", "0:1:2", ":", "a:b", "9" * 500 + ":1"],
)
def test_other_ranges_are_refused(given: str) -> None:
    with pytest.raises(ConfigurationError, match=r"pixel-range is .*LOW:HIGH"):
        resolve({"pixel-range": given})


def test_a_range_is_for_arrays_alone(tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text("a,target\n" + "1,0\n2,1\n" * 5)
    for word in ("digits", f"table:{tmp_path / 'some.csv'}", "tasks:digits:1,digits:1"):
        with pytest.raises(ConfigurationError, match=r"pixel-range.*npz"):
            load_dataset(word, "", Reading(pixel_range="0:1"))
    configuration = resolve({"pixel-range": "0:1"})
    assert configuration.keys.reading == Reading.of(configuration.values)
    assert Reading.of(configuration.keys.reading.values()).pixel_range == "0:1"
