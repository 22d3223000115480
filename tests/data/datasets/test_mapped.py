"""Arrays that stay on the disk."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from bfl.data.datasets import Reading, load_dataset, said_of
from bfl.errors import BflError

IMAGES, SIZE = 2000, 2000 * 256 * 256


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shape = (IMAGES, 256, 256, 1)
    images = np.lib.format.open_memmap(tmp_path / "x_train.npy", "w+", np.uint8, shape)
    images[7] = 200  # the rest of the file is a hole
    labels = np.where(np.arange(IMAGES) % 2, "odd", "even")
    for name, array in (("y_train", labels), ("x_test", images[:8]), ("y_test", labels[:8])):
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


def test_a_process_holds_the_images_that_it_takes(folder: Path) -> None:
    tracemalloc.start()
    try:
        dataset = load_dataset(f"mapped:{folder}")
        assert said_of(dataset)
        _, digest = dataset.train_images[np.arange(0, 70, 7)], dataset.train_digest
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Of the pixels a sample of at most some millions is counted.
    assert peak < SIZE / 2
    assert digest == load_dataset(f"mapped:{folder}").train_digest
    assert dataset.class_names == ("even", "odd")
    assert (dataset.train_images[7] == 200).all()


def test_what_would_be_copied_is_refused(folder: Path) -> None:
    with pytest.raises(BflError, match="image-size"):
        load_dataset(f"mapped:{folder}", "", Reading(size=8))
    np.save(folder / "x_train.npy", np.zeros((IMAGES, 2, 2, 1), np.float32))
    with pytest.raises(BflError, match="float32"):
        load_dataset(f"mapped:{folder}")
    (folder / "y_test.npy").write_bytes(b"")
    with pytest.raises(BflError, match=r"y_test\.npy"):
        load_dataset(f"mapped:{folder}")
    (folder / "y_test.npy").unlink()
    with pytest.raises(BflError, match=r"y_test\.npy"):
        load_dataset(f"mapped:{folder}")
