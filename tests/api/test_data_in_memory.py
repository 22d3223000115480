"""Data in memory as a run reads them: from a file that is written once."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import bfl
from bfl.api.arrays import store
from bfl.data.datasets import load_dataset
from bfl.errors import BflError

IMAGES = np.random.default_rng(0).integers(0, 256, (20, 4, 4), dtype=np.uint8)
LABELS = np.tile(["bee", "ant"], 10)
ROWS = np.random.default_rng(0).normal(size=(20, 3))


def test_images_and_labels_are_split_and_written_once(tmp_path: Path) -> None:
    word = store((IMAGES, LABELS), str(tmp_path), 0.3)
    dataset = load_dataset(word)
    assert dataset.class_names == ("ant", "bee")
    assert np.bincount(dataset.test_labels).tolist() == [3, 3]
    every = np.concatenate([dataset.train_images, dataset.test_images])[..., 0]
    assert sorted(map(bytes, every)) == sorted(map(bytes, IMAGES))
    (path,) = (tmp_path / ".data").iterdir()
    written = path.stat().st_mtime_ns
    assert store([IMAGES, list(LABELS)], str(tmp_path), 0.3) == word
    assert path.stat().st_mtime_ns == written
    both = load_dataset(store((IMAGES, LABELS, IMAGES[:4], LABELS[:4]), str(tmp_path), 0.3))
    np.testing.assert_array_equal(both.train_images[..., 0], IMAGES)
    assert both.test_labels.tolist() == [1, 0, 1, 0]


def test_rows_are_a_table(tmp_path: Path) -> None:
    word = store((ROWS, LABELS), str(tmp_path), 0.2)
    dataset = load_dataset(word)
    assert dataset.image_shape == (1, 3, 1)
    frame = pd.DataFrame(ROWS, columns=["x0", "x1", "x2"]).assign(target=LABELS)
    again = load_dataset(store(frame, str(tmp_path), 0.2))
    assert again.train_digest == dataset.train_digest
    assert again.encoding == dataset.encoding
    both = load_dataset(store((ROWS, LABELS, ROWS[:4], LABELS[:4]), str(tmp_path), 0.2))
    np.testing.assert_array_equal(both.train_columns["x1"], ROWS[:, 1])
    np.testing.assert_array_equal(both.test_columns["x1"], ROWS[:4, 1])


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"data": (IMAGES, LABELS), "dataset": "digits"}, "both given"),
        ({"data": IMAGES}, "allowed: .x, y."),
        ({"data": (IMAGES, LABELS[:3])}, "20 examples and 3 labels"),
        ({"data": (IMAGES, LABELS), "stratgy": "ws"}, "did you mean 'strategy'"),
        ({"data": pd.DataFrame({"a": [1.0, 2.0]}), "model": "mlp"}, "^data=.*target"),
        ({"data": (IMAGES * 2.0, LABELS)}, "^data=.*x_train"),
        ({"data": (IMAGES, LABELS), "task": "regression"}, "regression.*'data="),
        ({"data": (IMAGES, LABELS), "partition": "column:a", "clients": 0}, "column"),
        ({"data": (ROWS, LABELS), "model": "resnet8"}, "'data=.*model"),
        ({"data": (ROWS, LABELS, ROWS[:, :2], LABELS)}, "^data=.*'x2'"),
    ],
)
def test_what_is_no_data_is_refused_before_a_run(
    tmp_path: Path, keys: dict[str, Any], said: str
) -> None:
    # Also below a folder of two names.
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(BflError, match=said) as error:
        bfl.run(output_dir=str(tmp_path / "link"), backend="serial", **{"clients": 2} | keys)
    assert ".data" not in str(error.value)
    assert "link" not in str(error.value)
    tmp_path = tmp_path / "real"
    assert [path.name for path in tmp_path.iterdir() if path.name != ".data"] == []
