"""A data set is loaded once, and again when a file that it lies in has been overwritten."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bfl.data.datasets import cached_dataset


def write(path: Path, pixel: int, examples: int = 6) -> None:
    labels = np.arange(examples) % 2
    images = np.full((examples, 4, 4, 1), pixel, np.uint8)
    np.savez(path, x_train=images, y_train=labels, x_test=images, y_test=labels)


@pytest.mark.parametrize(
    ("word", "data_dir"),
    [("mnist", "{folder}"), ("tasks:npz:{folder}/b.npz:1,npz:{folder}/a.npz", "")],
)
def test_an_archive_that_was_overwritten_is_read_again(
    word: str, data_dir: str, tmp_path: Path
) -> None:
    given = (word.format(folder=tmp_path), data_dir.format(folder=tmp_path))

    def brightest() -> tuple[Any, int]:
        found = cached_dataset(*given)
        return found, int(found.train_images.max())

    write(tmp_path / "b.npz", 1)
    archives = [tmp_path / "a.npz", tmp_path / "mnist.npz"]
    for archive in archives:
        write(archive, 7)
    first, pixel = brightest()
    assert pixel == 7
    assert cached_dataset(*given) is first
    # Of the same size, in the same folder, by rename as by writing.
    for number, pixel in enumerate((8, 9)):
        for archive in archives:
            if number:
                write(archive, pixel)
            else:
                write(tmp_path / "other.npz", pixel)
                (tmp_path / "other.npz").replace(archive)
        assert brightest()[1] == pixel
    assert cached_dataset(*given) is cached_dataset(*given)
