"""Data sets whose images are padded."""

from pathlib import Path

import numpy as np
import pytest

from bfl.configuration import resolve
from bfl.data.datasets import absolute_dataset, load_dataset, validate_dataset
from bfl.errors import ConfigurationError, DataError


def test_images_grow_by_their_edges_and_labels_stay() -> None:
    digits, wide = load_dataset("digits"), load_dataset("padded:12:digits")
    wide.check()
    assert wide.name == "padded:12:digits"
    assert wide.image_shape == (12, 12, 1)
    for split in ("train", "test"):
        old, new = getattr(digits, f"{split}_images"), getattr(wide, f"{split}_images")
        np.testing.assert_array_equal(new[:, 2:-2, 2:-2], old)
        np.testing.assert_array_equal(new[:, 0, 2:-2], old[:, 0])
        labels = f"{split}_labels"
        np.testing.assert_array_equal(getattr(wide, labels), getattr(digits, labels))
    assert wide.class_names == digits.class_names


def test_its_word_is_checked_before_anything_starts(tmp_path: Path) -> None:
    for word, said in {
        "padded": "'padded:SIZE:DATASET'",
        "padded:12": "unknown dataset ''",
        "padded:0:digits": "a side in pixels, as in 'padded:32:mnist'",
        "padded:12x12:digits": "a side in pixels",
        "padded:12:digit": "did you mean 'digits'",
        "padded:12:npz:nowhere.npz": "there is no file nowhere.npz",
        "padded:12:digits:8": "write it as 'digits'",
    }.items():
        with pytest.raises(ConfigurationError) as error:
            resolve({"dataset": word})
        assert said in str(error.value), word
    for word in (
        "padded:32323:digits",
        "resized:32323:digits",
        "resized:99999x1x3:padded:60000:digits",
        "tasks:digits:1,padded:60000:digits:1",
    ):
        with pytest.raises(DataError, match="GiB"):
            load_dataset(word)
    for word in ("padded:1234567:digits", f"resized:{'9' * 5000}:digits"):
        with pytest.raises(ConfigurationError):
            resolve({"dataset": word})
    with pytest.raises(DataError, match=r"'padded:7:digits': images of 8 x 8 .* padded to 7"):
        load_dataset("padded:7:digits")


def test_a_relative_archive_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = np.zeros((2, 4, 4), np.uint8), np.arange(2)
    np.savez(tmp_path / "own.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    word, folder = absolute_dataset("padded:6:npz:own.npz", tmp_path)
    monkeypatch.chdir("/")
    assert word == f"padded:6:npz:{(tmp_path / 'own.npz').resolve()}"
    validate_dataset(word, folder)
    assert load_dataset(word).image_shape == (6, 6, 1)
    # One within another, with a data set that is looked for in data-dir.
    np.savez(tmp_path / "mnist.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    assert load_dataset("padded:9:padded:6:mnist", tmp_path).image_shape == (9, 9, 1)
