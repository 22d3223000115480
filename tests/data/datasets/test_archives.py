"""Archives of one's own: what is read from them, and what is said about bad ones."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bfl.data.datasets import Reading, load_dataset
from bfl.errors import BflError, DataError

GENERATOR = np.random.Generator(np.random.Philox(0))
IMAGES = GENERATOR.integers(0, 256, (6, 5, 4, 3), np.uint8)


def arrays(**changes: Any) -> dict[str, Any]:
    good = {
        "x_train": IMAGES[:4],
        "y_train": np.array([2, 0, 1, 0]),
        "x_test": IMAGES[4:],
        "y_test": np.array([1, 2]),
    }
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def load(tmp_path: Path, pixel_range: str = "", **changes: Any):
    path = tmp_path / "some.npz"
    np.savez(path, **arrays(**changes))
    return load_dataset(f"npz:{path}", "", Reading(pixel_range=pixel_range))


def test_uint8_archives_come_back_as_they_are(tmp_path: Path) -> None:
    dataset = load(tmp_path)
    assert np.array_equal(dataset.train_images, IMAGES[:4])
    assert np.array_equal(dataset.test_images, IMAGES[4:])
    assert dataset.train_labels.dtype == np.int64
    assert dataset.train_labels.tolist() == [2, 0, 1, 0]
    assert dataset.class_names == ("0", "1", "2")
    assert dataset.name == f"npz:{tmp_path / 'some.npz'}"


def test_grey_images_and_column_labels(tmp_path: Path) -> None:
    grey, column = IMAGES[..., 0], np.array([[2], [0], [1], [0]], np.uint8)
    names = np.array(["bee ", "cat", "ant", "none"])
    dataset = load(tmp_path, x_train=grey[:4], x_test=grey[4:], y_train=column, class_names=names)
    assert dataset.image_shape == (5, 4, 1)
    assert np.array_equal(dataset.train_images[..., 0], grey[:4])
    assert dataset.train_labels.tolist() == [2, 0, 1, 0]
    assert dataset.class_names == ("bee", "cat", "ant", "none")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_of_0_to_1_are_kept_as_floats(tmp_path: Path, dtype: type) -> None:
    scaled = (IMAGES / 255).astype(dtype)
    dataset = load(tmp_path, x_train=scaled[:4], x_test=scaled[4:])
    assert dataset.train_images.dtype == dataset.test_images.dtype == np.float32
    np.testing.assert_allclose(dataset.train_images, IMAGES[:4], rtol=np.finfo(dtype).eps)
    mixed = load(tmp_path, x_train=scaled[:4])
    np.testing.assert_array_equal(mixed.test_images, IMAGES[4:])
    assert mixed.test_images.dtype == np.float32


@pytest.mark.parametrize(
    ("dtype", "pixel_range"),
    [
        (np.int16, "-1024:3071"),
        (np.int64, "-1e300:1e300"),
        (np.float32, "-0.7:1.4"),
        (np.float64, " -1e3 : 4000.5"),
        (np.uint8, "0:255"),
    ],
)
def test_measurements_are_mapped_as_by_hand_and_kept_as_floats(
    tmp_path: Path, dtype: type, pixel_range: str
) -> None:
    low, high = map(float, pixel_range.split(":"))
    generator = np.random.default_rng(0)
    ends = (max(low, -9e18), min(high, 9e18)) if dtype is np.int64 else (low, high)
    given = generator.uniform(*ends, (6, 5, 4, 3)).astype(dtype)
    given[0, 0, 0, :2] = ends
    dataset = load(tmp_path, pixel_range, x_train=given[:4], x_test=given[4:])
    by_hand = np.clip((given.astype(np.float64) - low) / (high - low), 0, 1).astype(np.float32)
    assert dataset.train_images.dtype == dataset.test_images.dtype == np.float32
    np.testing.assert_array_equal(dataset.train_images, by_hand[:4] * np.float32(255))
    np.testing.assert_array_equal(dataset.test_images, by_hand[4:] * np.float32(255))
    # Of one type or of two: the scale is that of all.
    mixed = load(tmp_path, pixel_range, x_train=given[:4], x_test=given[4:].astype(np.float64))
    np.testing.assert_allclose(mixed.test_images, by_hand[4:] * 255, atol=1e-4)


@pytest.mark.parametrize("value", [-1025, 3072.0, np.nan, -np.inf])
def test_measurements_outside_the_range_are_refused(tmp_path: Path, value: float) -> None:
    given = IMAGES[4:].astype(type(value))
    given[1, 0, 2, 1] = given[1, 4, 3, 2] = value
    with pytest.raises(DataError, match=rf"some\.npz: x_test\[1, 0, 2, 1\] is {value}[.,0].*-1024"):
        load(tmp_path, "-1024:3071", x_test=given)


def test_a_range_between_integers_has_those_within(tmp_path: Path) -> None:
    given = np.full((4, 5, 4, 3), 1, np.int8)
    assert load(tmp_path, "0.5:1.5", x_train=given, x_test=given[:2]).train_images.max() == 127.5
    for value in (0, 2, -128):
        with pytest.raises(DataError, match=rf"x_train\[0, 0, 0, 0\] is {value}"):
            load(tmp_path, "0.5:1.5", x_train=given * 0 + np.int8(value), x_test=given[:2])


@pytest.mark.parametrize(
    "images",
    [
        *(IMAGES.astype(np.int64), IMAGES.astype(np.float32), IMAGES / 127.5 - 1, IMAGES > 7),
        np.full(IMAGES.shape, 1 + np.spacing(1.0)),
    ],
)
def test_what_is_no_pixel_is_refused_with_the_key_that_says_its_scale(
    tmp_path: Path, images: np.ndarray
) -> None:
    with pytest.raises(BflError, match=r'x_train.*pixel-range="LOW:HIGH"') as error:
        load(tmp_path, x_train=images[:4], x_test=images[4:])
    assert "\n" not in str(error.value)
