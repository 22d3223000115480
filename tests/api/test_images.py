"""Images that are not what the network takes are refused with what was given and expected."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bfl
from bfl.api.predictions import checked_images
from bfl.data.datasets import load_dataset
from bfl.data.datasets.archive import read_archive
from bfl.errors import DataError

GREY = (8, 8, 1)
COLOUR = (4, 6, 3)


def pixels(*shape: int) -> Any:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_are_scaled_as_in_an_archive_that_a_run_learns_from(
    dtype: Any, tmp_path: Path
) -> None:
    images = np.random.default_rng(0).random((5, *COLOUR)).astype(dtype)
    labels = np.arange(5)
    path = tmp_path / "data.npz"
    np.savez(path, x_train=images, y_train=labels, x_test=images, y_test=labels)
    expected = read_archive(path, "data").test_images
    np.testing.assert_array_equal(checked_images(images, COLOUR), expected)


@pytest.mark.parametrize("dtype", [np.int16, np.float64])
def test_measurements_have_the_runs_range_and_grey_needs_no_channel_axis(dtype: Any) -> None:
    images = (pixels(5, 8, 8) * 16.0 - 1024).astype(dtype)
    settings = {"pixel-range": "-1024:3071"}
    checked = checked_images(images, GREY, settings)[..., 0]
    np.testing.assert_allclose(checked, (images + 1024.0) / 4095 * 255, rtol=1e-6)
    images[4, 0, 1] = 3072
    with pytest.raises(DataError, match=r"images\[4, 0, 1, 0\] is 3072"):
        checked_images(images, GREY, settings)


REFUSED: dict[str, tuple[Any, tuple[int, int, int], str]] = {
    "size": (pixels(2, 9, 8, 1), GREY, r"shape \(2, 9, 8, 1\); expected \(N, 8, 8, 1\)"),
    "channels": (pixels(2, 8, 8, 3), GREY, r"shape \(2, 8, 8, 3\); expected \(N, 8, 8, 1\)"),
    "one grey image": (pixels(8, 8), GREY, r"images\[np.newaxis\]"),
    "one image": (pixels(*COLOUR), COLOUR, r"images\[np.newaxis\]"),
    "no channel axis": (pixels(2, 4, 6), COLOUR, r"shape \(2, 4, 6\); expected \(N, 4, 6, 3\)"),
    "channels first": (pixels(2, 3, 4, 6), COLOUR, "channels come last"),
    "empty": (pixels(0, *GREY), GREY, "images are empty"),
    "nothing": ([], GREY, r"shape \(0,\)"),
    "a number": (3, GREY, r"shape \(\)"),
    "strings": (np.full((1, *GREY), "a"), GREY, "type <U1"),
    "booleans": (np.ones((1, *GREY), bool), GREY, "type bool"),
    "objects": (np.full((1, *GREY), None), GREY, "type object"),
    "ragged": ([[1], [1, 2]], GREY, "cannot be made an array"),
    "too bright": (np.full((1, *GREY), 256), GREY, "type int64"),
    "negative": (np.full((1, *GREY), -0.5), GREY, "is -0.5"),
    "floats just above 1": (np.linspace(0, 1.05, 64).reshape(1, *GREY), GREY, "pixel-range"),
    "not a number": (np.full((1, *GREY), np.nan), GREY, "is nan"),
}


@pytest.mark.parametrize(("images", "shape", "word"), REFUSED.values(), ids=REFUSED.keys())
def test_wrong_images_are_refused(images: Any, shape: tuple[int, int, int], word: str) -> None:
    with pytest.raises(DataError, match=word):
        checked_images(images, shape)


def test_the_last_layer_turns_features_into_what_the_network_predicts(result: bfl.Result) -> None:
    images, model = load_dataset("digits").test_images[:60], result.keras_model()
    head = [layer for layer in model.layers if layer.weights][-1].layers[-1]
    kernel, bias = (weights.numpy() for weights in head.weights)
    likely = np.exp(result.features(images) @ kernel + bias)
    shares = likely / likely.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, model.predict(images, verbose=0), rtol=1e-4, atol=1e-6)
