"""Folders of images by class, written by Pillow on the spot."""

import os
import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bfl.data.datasets import Reading, cached_dataset, load_dataset
from bfl.data.datasets.folder import read_unlabelled
from bfl.errors import BflError, ConfigurationError


def write(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def grey(value: int, side: int = 4, dtype: type = np.uint8) -> np.ndarray:
    return np.full((side, side), value, dtype)


def fill(root: Path, each: int = 5) -> None:
    """Write so many images of two classes, each of another grey."""
    for number in range(each):
        write(root / "ant" / f"{number}.png", grey(10 + number))
        write(root / "bee" / f"{number}.png", grey(100 + number))


def test_train_and_test_folders_are_read_as_they_are(tmp_path: Path) -> None:
    fill(tmp_path / "train", 3)
    fill(tmp_path / "test", 2)
    dataset = load_dataset(f"folder:{tmp_path}")
    assert dataset.class_names == ("ant", "bee")
    assert dataset.train_images[:, 0, 0, 0].tolist() == [10, 11, 12, 100, 101, 102]
    assert dataset.train_labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert dataset.test_images[:, 0, 0, 0].tolist() == [10, 11, 100, 101]
    assert dataset.image_shape == (4, 4, 1)
    assert dataset.train_images.dtype == np.uint8
    assert not dataset.train_columns
    # Where a file says which class is which, nothing has to be said.
    assert dataset.numbered_here
    (tmp_path / "classes.txt").write_text("bee\nwasp\nant\n")
    ordered = load_dataset(f"folder:{tmp_path.name}", tmp_path.parent)
    assert ordered.train_labels.tolist() == [2, 2, 2, 0, 0, 0]
    assert (ordered.class_names, ordered.numbered_here) == (("bee", "wasp", "ant"), "")
    # A file that is written anew is read anew, as a process keeps a data set.
    assert cached_dataset(f"folder:{tmp_path}", "").class_names == ordered.class_names
    (tmp_path / "classes.txt").write_text("ant\nbee\n")
    assert cached_dataset(f"folder:{tmp_path}", "").class_names == ("ant", "bee")
    shutil.rmtree(tmp_path / "test")
    assert str(tmp_path / "train") in load_dataset(f"folder:{tmp_path}").said[0]


def test_what_is_no_image_is_not_read(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    for name in ("ant/notes.txt", "bee/scan.dcm", "ant/.DS_Store"):
        (tmp_path / name).write_bytes(b"no image")
    (tmp_path / "ant" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "ant" / "circle").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "ant" / "pipe.png")  # nothing ever comes from it
    (tmp_path / "bee").rename(tmp_path / ".elsewhere")
    (tmp_path / "bee").symlink_to(tmp_path / ".elsewhere")
    dataset = load_dataset(f"folder:{tmp_path}")
    assert len(dataset.train_images) + len(dataset.test_images) == 6
    (line,) = dataset.said
    assert "2 files that are no images (ant/notes.txt, bee/scan.dcm)" in line
    files, images = read_unlabelled(tmp_path / "ant", Reading())
    assert files == ("0.png", "1.png", "2.png")
    assert images[:, 0, 0, 0].tolist() == [10, 11, 12]


@pytest.mark.parametrize("mark", ["\ufeff", "", "\x07"])
def test_names_of_classes_are_normalized(tmp_path: Path, mark: str) -> None:
    """However a file system composes an accent, and an editor begins a file."""
    for part in ("train", "test"):
        fill(tmp_path / part, 2)
    composed, apart = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    for part, name in (("train", composed), ("test", apart), ("test", f" {composed}")):
        write(tmp_path / part / name / "0.png", grey(200))
    dataset = load_dataset(f"folder:{tmp_path}")
    assert dataset.class_names == ("ant", "bee", composed)
    assert dataset.test_labels.tolist().count(2) == 2
    (tmp_path / "classes.txt").write_text(f"{mark}bee\r\n{apart}\r\nant\r\n", encoding="utf-8")
    assert load_dataset(f"folder:{tmp_path}").class_names == ("bee", composed, "ant")


def test_a_share_of_each_class_is_for_testing(tmp_path: Path) -> None:
    fill(tmp_path, 10)
    dataset = load_dataset(f"folder:{tmp_path}", "", Reading(test_share=0.3))
    assert np.bincount(dataset.test_labels).tolist() == [3, 3]
    values = [a[:, 0, 0, 0].tolist() for a in (dataset.train_images, dataset.test_images)]
    assert sorted(values[0] + values[1]) == [*range(10, 20), *range(100, 110)]
    again = load_dataset(f"folder:{tmp_path}", "", Reading(test_share=0.3))
    assert again.test_digest == dataset.test_digest


def test_folders_above_the_classes_are_sites(tmp_path: Path) -> None:
    fill(tmp_path / "train" / "north", 2)
    fill(tmp_path / "train" / "south", 1)
    fill(tmp_path / "test" / "south", 1)
    dataset = load_dataset(f"folder:{tmp_path}")
    assert dataset.train_columns["site"].tolist() == ["north"] * 4 + ["south"] * 2
    assert dataset.test_columns["site"].tolist() == ["south"] * 2
    assert dataset.class_names == ("ant", "bee")
    shutil.rmtree(tmp_path / "test")
    fill(tmp_path / "test", 1)  # for all sites
    dataset = load_dataset(f"folder:{tmp_path}")
    assert len(dataset.train_columns["site"]) == 6
    assert [len(dataset.test_columns), len(dataset.said)] == [0, 1]


def test_images_of_several_sizes_kinds_and_depths_become_one_array(tmp_path: Path) -> None:
    fill(tmp_path / "test", 1)
    fill(tmp_path / "train", 1)
    colour = np.zeros((8, 8, 4), np.uint8)
    colour[..., 0], colour[..., 3] = 200, 7  # red, and nearly transparent
    write(tmp_path / "train" / "ant" / "1.png", colour)
    deep = write(tmp_path / "train" / "bee" / "1.png", grey(30_000, 2, np.uint16))
    word, four = f"folder:{tmp_path}", Reading(image_size=4)
    dataset = load_dataset(word, "", four)
    assert dataset.train_images.dtype == np.float32
    assert dataset.train_images.shape == (4, 4, 4, 3)
    np.testing.assert_array_equal(dataset.train_images[1, 0, 0], [200, 0, 0])
    np.testing.assert_allclose(dataset.train_images[3], 30_000 / 257, rtol=1e-6)
    deep.unlink()
    assert load_dataset(word, "", four).train_images.dtype == np.uint8
    with pytest.raises(BflError, match=r"1.png is 8 x 8 .*image-size"):
        load_dataset(word)


def test_floats_of_a_folder_have_no_range(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    write(tmp_path / "ant" / "0.tif", grey(0, dtype=np.float32) - 1000)
    with pytest.raises(BflError, match=r"0\.tif.*-1000.*in arrays"):
        load_dataset(f"folder:{tmp_path}")
    with pytest.raises(ConfigurationError, match=r"pixel-range.*folder.*npz"):
        load_dataset(f"folder:{tmp_path}", "", Reading(pixel_range="-1000:3000"))
