"""Folders of images by class, written by Pillow on the spot."""

import os
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bfl.commands.predict import read_pictures
from bfl.data.datasets import Reading, cached_dataset, load_dataset, said_of
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


def test_what_a_folder_has_and_a_run_does_not_use_is_counted(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    for name in ("ant/notes.txt", "ant/labels.csv", "bee/scan.dcm", "ant/.DS_Store"):
        (tmp_path / name).write_bytes(b"no image")
    (tmp_path / "ant" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "ant" / "circle").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "ant" / "pipe.png")  # nothing ever comes from it
    write(tmp_path / "overview.png", grey(1))
    pages = [Image.fromarray(grey(value)) for value in (3, 4)]
    pages[0].save(tmp_path / "bee" / "pages.tif", save_all=True, append_images=pages[1:])
    dataset = load_dataset(f"folder:{tmp_path}")
    assert len(dataset.train_images) + len(dataset.test_images) == 7
    (line,) = dataset.said
    kinds = ("links that lead nowhere", "images with further pages", "links to a folder above")
    for kind in (*kinds, "hidden files", "neither files nor folders", "images beside the folders"):
        assert f"1 {kind}" in line
    assert "3 files of other endings" in line
    assert "ant/gone.png" in line


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
    assert any("NFC" in line for line in said_of(dataset))
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


def test_images_of_several_sizes_kinds_and_depths_become_one_array(tmp_path: Path) -> None:
    fill(tmp_path / "test", 1)
    fill(tmp_path / "train", 1)
    colour = np.zeros((8, 8, 4), np.uint8)
    colour[..., 0], colour[..., 3] = 200, 7  # red, and nearly transparent
    write(tmp_path / "train" / "ant" / "1.png", colour)
    deep = write(tmp_path / "train" / "bee" / "1.png", grey(30_000, 2, np.uint16))
    word, four = f"folder:{tmp_path}", Reading(size=4)
    dataset = load_dataset(word, "", four)
    assert dataset.train_images.dtype == np.float32
    assert dataset.train_images.shape == (4, 4, 4, 3)
    np.testing.assert_array_equal(dataset.train_images[1, 0, 0], [200, 0, 0])
    np.testing.assert_allclose(dataset.train_images[3], 30_000 / 257, rtol=1e-6)
    # Of the one image that is transparent a person is told.
    (said,) = dataset.said
    assert "1 transparencies of images" in said
    assert "train/ant/1.png" in said
    deep.unlink()
    assert load_dataset(word, "", four).train_images.dtype == np.uint8
    with pytest.raises(BflError, match=r"1.png is 8 x 8 .*image-size"):
        load_dataset(word)
    with pytest.raises(BflError, match=r"labels\.csv"):
        load_dataset(word, "", Reading(size=4, target="species"))


LINES = """file,species,hospital
ant/0.png,ant,north
bee/0.png,bee,south
ant/1.png,ant,south
bee/1.png,bee,north
"""


def test_a_file_says_the_answers_of_images_and_their_sites(tmp_path: Path) -> None:
    fill(tmp_path / "train", 2)
    (tmp_path / "train" / "labels.csv").write_text(LINES)
    for name in ("._0.png", ".cache/0.png"):  # what systems leave there is none of the images
        write(tmp_path / "train" / "ant" / name, grey(7))
    write(tmp_path / "test" / "any.png", grey(7))
    test = "any,hospital,species\nany.png,north,bee\n"
    (tmp_path / "test" / "labels.csv").write_text(test)
    word = f"folder:{tmp_path}"
    dataset = load_dataset(word, "", Reading(target="species"))
    assert dataset.class_names == ("ant", "bee")
    assert dataset.train_images[:, 0, 0, 0].tolist() == [10, 100, 11, 101]
    assert (dataset.train_labels.tolist(), dataset.test_labels.tolist()) == ([0, 1, 0, 1], [1])
    sites = dataset.train_columns["hospital"]
    assert (sites.tolist(), dataset.test_columns["hospital"].tolist()) == (
        ["north", "south", "south", "north"],
        ["north"],
    )
    for lost, other in (("test", "."), ("test", "elsewhere"), ("train", "elsewhere")):
        (tmp_path / "elsewhere").mkdir(exist_ok=True)
        file, moved = tmp_path / lost / "labels.csv", tmp_path / other / "labels.csv"
        file.rename(moved)
        with pytest.raises(BflError, match=r"in both of them or in neither"):
            load_dataset(word, "", Reading(target="species"))
        moved.rename(file)
    # Without a part for testing a share of the lines is, with their images and sites.
    (tmp_path / "test").rename(tmp_path / "train" / "more")
    (tmp_path / "train" / "more" / "labels.csv").unlink()
    (tmp_path / "train" / "labels.csv").write_text(LINES + "more/any.png,ant,north\n")
    shared = load_dataset(f"{word}/train", "", Reading(target="species", test_share=0.4))
    assert shared.split_here
    assert [len(a) for a in (shared.train_images, shared.tested_on)] == [3, 2]
    known = {10: 0, 100: 1, 11: 0, 101: 1, 7: 0}
    for images, answers in (
        (shared.train_images, shared.trained_on),
        (shared.test_images, shared.tested_on),
    ):
        assert answers.tolist() == [known[pixel] for pixel in images[:, 0, 0, 0].tolist()]


def test_floats_of_a_folder_have_no_range(tmp_path: Path) -> None:
    fill(tmp_path, 2)
    write(tmp_path / "ant" / "0.tif", grey(0, dtype=np.float32) - 1000)
    with pytest.raises(BflError, match=r"0\.tif.*-1000.*in arrays"):
        load_dataset(f"folder:{tmp_path}")
    with pytest.raises(ConfigurationError, match=r"pixel-range.*folder.*npz"):
        load_dataset(f"folder:{tmp_path}", "", Reading(pixel_range="-1000:3000"))


def damage(*paths: Path) -> None:
    for path in paths:
        path.write_bytes(path.read_bytes()[:40])


@pytest.mark.parametrize("parts", ["", "train"])
def test_damaged_images_are_left_out_where_it_is_asked_for(tmp_path: Path, parts: str) -> None:
    """With their labels and sites, and told of once."""
    north = tmp_path / parts / "north"
    fill(north, 8)
    fill(tmp_path / parts / "south", 8)
    if parts:
        fill(tmp_path / "test" / "south", 2)
    word, skip = f"folder:{tmp_path}", Reading(unreadable="skip")
    assert Reading.of(skip.values()) == skip
    assert not load_dataset(word, "", skip).said
    whole = load_dataset(word, "", skip)
    damage(*(north / "bee" / f"{number}.png" for number in (0, 2, 3, 7)))
    with pytest.raises(BflError, match=r"bee.\d\.png.*unreadable-images"):
        load_dataset(word)
    with pytest.raises(BflError, match=r"bee.\d\.png"):
        read_pictures(north, Reading())
    with pytest.warns(UserWarning, match="4 damaged images"):
        files, images = read_pictures(north, skip)
    assert [int(Path(name).stem) for name in files] == [*range(8), 1, 4, 5, 6]
    assert images[8:, 0, 0, 0].tolist() == [101, 104, 105, 106]
    dataset = load_dataset(word, "", skip)
    [said] = [line for line in said_of(dataset) if "4 damaged images" in line]
    assert said.count(".png") == 3
    gone = {100, 102, 103, 107}
    for split in ("train", "test"):
        pixels, old = (getattr(d, f"{split}_images")[:, 0, 0, 0] for d in (dataset, whole))
        labels, sites = getattr(dataset, f"{split}_labels"), getattr(dataset, f"{split}_columns")
        of_north = getattr(whole, f"{split}_columns")["site"] == "north"
        kept = ~(of_north & np.isin(old, [*gone]))
        assert pixels.tolist() == old[kept].tolist()
        assert labels.tolist() == (pixels >= 100).astype(int).tolist()
        np.testing.assert_array_equal(sites["site"] == "north", of_north[kept])
    damage(*(tmp_path / parts).rglob("bee/*.png"))
    with pytest.raises(BflError, match=r"class bee .*train") as error:
        load_dataset(word, "", skip)
    assert "\n" not in str(error.value)
    damage(*tmp_path.rglob("*.png"))
    with pytest.raises(BflError, match="none of"):
        load_dataset(word, "", skip)
