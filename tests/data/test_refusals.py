"""Data that are refused: each by its file, and by the array, column, key or place that is wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from bfl.data.datasets import Reading, load_dataset, validate_dataset
from bfl.errors import BflError, ConfigurationError, DataError

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), np.uint8)

ARCHIVES: dict[str, tuple[dict[str, Any], str]] = {
    "one missing": ({"y_test": None}, "y_test missing"),
    "flat images": ({"x_train": np.zeros((4, 60), np.uint8)}, "x_train has the shape (4, 60)"),
    "videos": ({"x_test": np.zeros((2, 1, 5, 4, 3), np.uint8)}, "x_test has the shape"),
    "no images": ({"x_train": IMAGES[:0], "y_train": np.zeros(0, int)}, "x_train has the shape (0"),
    "object images": ({"x_train": np.array([None] * 4, object)}, "x_train cannot be read"),
    "nan pixels": ({"x_test": np.full((2, 5, 4, 3), np.nan)}, "x_test[0, 0, 0, 0] is nan"),
    "negative pixels": ({"x_test": -np.ones((2, 5, 4, 3))}, "x_test"),
    "bright pixels": ({"x_test": np.full((2, 5, 4, 3), 256)}, "x_test"),
    "other size": ({"x_test": np.zeros((2, 4, 5, 3), np.uint8)}, "x_test are (4, 5, 3)"),
    "other channels": ({"x_test": np.zeros((2, 5, 4), np.uint8)}, "x_test are (5, 4, 1)"),
    "channels first": ({"x_train": np.zeros((4, 3, 6, 5), np.uint8)}, "transpose(0, 2, 3, 1)"),
    "scalar labels": ({"y_test": np.array(1)}, "y_test"),
    "one-hot": ({"y_train": np.eye(3)[[2, 0, 1, 0]]}, "y_train"),
    "too few labels": ({"y_train": np.array([0, 1, 2])}, "y_train"),
    "too many labels": ({"y_test": np.array([0, 1, 2])}, "y_test"),
    "negative test label": ({"y_test": np.array([0, -3])}, "y_test"),
    "unseen class": ({"y_test": np.array([0, 3])}, "y_test"),
    "huge label": ({"y_test": np.array([0, 2**63], np.uint64)}, "y_test"),
    "one class": ({"y_train": np.zeros(4, int)}, "y_train"),
    "stray label": ({"y_train": np.array([0, 99_999, 1, 0])}, "y_train[1] is the label 99999"),
    "from 1": ({"y_train": np.array([1, 2, 3, 1])}, "labels count from 0"),
    "too few names": ({"class_names": np.array(["a", "b"])}, "y_train"),
    "names twice": ({"class_names": np.array(["a", "b", " a"])}, "class_names"),
    "numbers as names": ({"class_names": np.arange(3)}, "class_names"),
    "half a class": ({"y_train": np.array([0, 0.5, 1, 2])}, "y_train has the type float64"),
    "words": ({"y_test": np.array(["a", "b"])}, "y_test has the type <U1"),
    "dates": ({"y_train": np.zeros(4, "M8[D]")}, "y_train"),
}


@pytest.mark.parametrize(("changes", "named"), ARCHIVES.values(), ids=ARCHIVES)
def test_archives(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    good = {"x_train": IMAGES[:4], "y_train": np.array([2, 0, 1, 0])}
    given = {**good, "x_test": IMAGES[4:], "y_test": np.array([0, 2]), **changes}
    path = tmp_path / "some.npz"
    np.savez(path, **{name: array for name, array in given.items() if array is not None})
    refused(f"npz:{path}", named, DataError)


def refused(word: str, named: str, kind: type[BflError], reading: Reading | None = None) -> None:
    """Refuse in one line that names the file as well."""
    with pytest.raises(kind) as error:
        load_dataset(word, "", reading or Reading())
    assert named in str(error.value)
    assert word.partition(":")[2].rpartition("/")[2] in str(error.value)
    assert "\n" not in str(error.value)


TARGET = Reading(target="outcome", columns_left_out="site", test_share=0.25)
NUMBERS = Reading(target="age", task="regression")
TABLES: dict[str, tuple[dict[str, Any], Reading, str]] = {
    "no target": ({}, Reading(), "the key target"),
    "another target": ({}, Reading(target="outcomes"), "'outcome'"),
    "another column left out": ({}, Reading(target="outcome", columns_left_out="sites"), "'site'"),
    "missing number": ({"age": [*range(38), np.nan, 1.0]}, TARGET, "row 39 "),
    "missing text": ({"stage": ["i"] * 4 + [None] + ["ii"] * 35}, TARGET, "row 5 "),
    "missing class": ({"outcome": ["well"] * 9 + [None] + ["ill"] * 30}, TARGET, "row 10 "),
    "infinite": ({"age": [np.inf, *range(39)]}, TARGET, "finite values, or columns-left-out"),
    "decimal commas": ({"stage": ["1,5", "2,5"] * 20}, TARGET, "'1,5'; allowed: a point"),
    "one class": ({"outcome": ["well"] * 40}, TARGET, "'well'"),
    "one number": ({"outcome": np.full(40, 3)}, TARGET, "'3'"),
    "no class": ({"outcome": np.linspace(0, 1, 40)}, TARGET, 'task="regression"'),
    "no number": ({"age": [*range(39), "n/k"]}, NUMBERS, "'n/k'"),
    "no numbers": ({"age": ["x"] * 40}, NUMBERS, 'task="classification"'),
    "nothing to predict": ({"age": np.ones(40)}, NUMBERS, "'age'"),
    "names": ({"stage": [f"p{n}" for n in range(40)]}, TARGET, "columns-left-out"),
    "no number among numbers": ({"age": [*range(39), "n/k"]}, TARGET, "row 40 (from 1"),
    "numbers and a text": (
        {"age": [*map(int, np.arange(39) % 25), "n/k"]},
        TARGET,
        "row 40 (from 1",
    ),
    "half names": ({"age": [*range(20), *map("n{}".format, range(20))]}, TARGET, "'age'"),
    "too large": ({"age": np.repeat([1e308, -1e308], 20)}, TARGET, "'age'"),
    "dates": ({"age": pd.date_range("2020-01-01", periods=40)}, TARGET, "'age' holds values"),
    "lists": ({"age": [[0.5, n] for n in range(40)]}, TARGET, "'age'"),
    "bytes": ({"age": [b"x"] * 40}, TARGET, "'age'"),
}


@pytest.mark.parametrize(("changes", "reading", "named"), TABLES.values(), ids=TABLES)
def test_tables(tmp_path: Path, changes: dict[str, Any], reading: Reading, named: str) -> None:
    generator = np.random.default_rng(0)
    columns = {
        "age": generator.normal(50.0, 10.0, 40),
        "stage": generator.choice(["i", "ii", "iii"], 40),
        "site": np.repeat(["north", "south"], 20),
        "outcome": np.tile(["well", "ill"], 20),
    }
    path = tmp_path / "some.parquet"
    frame = pd.DataFrame({**columns, **changes})
    mixed = [name for name in frame if {str, int} <= set(map(type, frame[name]))]
    frame.astype(dict.fromkeys(mixed, str)).to_parquet(path)
    refused(f"table:{path}", named, DataError, reading)


SOUND = "age,outcome\n" + "1,ill\n2,well\n" * 5
FILES: dict[str, tuple[str, str, str]] = {
    "no Parquet": ("some.parquet", "no table", "cannot be read"),
    "empty": ("empty.csv", "", "cannot be read"),
    "no rows": ("rows.csv", "age,outcome\n", "no rows"),
    "latin": ("latin.csv", SOUND.replace("ill", "\u00fc"), "line 2: byte 0xfc"),
    "a longer row": ("longer.csv", SOUND.replace("1,ill", "1,ill,2", 1), "cannot be read"),
    "a column twice": ("twice.csv", SOUND.replace("age", "age,age", 1), "'age' stands in it twice"),
    "one row": ("row.csv", "age,outcome\n1,ill\n", "test-share"),
}


@pytest.mark.parametrize(("name", "text", "named"), FILES.values(), ids=FILES)
def test_files_that_are_no_tables(tmp_path: Path, name: str, text: str, named: str) -> None:
    (tmp_path / name).write_text(text, encoding="latin-1")
    refused(f"table:{tmp_path / name}", named, DataError, Reading(target="outcome"))


def write(path: Path, content: bytes | str | int = 7) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, int):
        Image.fromarray(np.full((4, 4), content, np.uint8)).save(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def emptied(root: Path, *names: str) -> None:
    for name in names:
        for path in (root / name).iterdir():
            path.unlink()
        (root / name).rmdir()


FOLDERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no classes": (lambda root: (emptied(root, "ant", "bee"), write(root / "1.png")), "CLASS"),
    "one class": (lambda root: emptied(root, "bee"), "train_labels"),
    "damaged": (
        lambda root: [write(root / f"bee/{n}.png", b"\x89PNG") for n in range(11)],
        "11 of 13 images: ",
    ),
    "no image": (lambda root: write(root / "wasp/1.dcm", b"dicom"), "wasp"),
    "deeper": (lambda root: write(root / "wasp/site/1.png"), "wasp/site/1.png"),
    "beside": (lambda root: write(root / "1.png"), "1.png"),
    "far deeper": (
        lambda root: (emptied(root, "ant", "bee"), write(root / "a/b/c/1.png")),
        "no folders of images",
    ),
    "other names": (lambda root: write(root / "classes.txt", "ant\nbees\n"), "'bees'"),
    "a name twice": (lambda root: write(root / "classes.txt", "ant\nant \n"), "classes.txt"),
}


@pytest.mark.parametrize(("change", "named"), FOLDERS.values(), ids=FOLDERS)
def test_folders(tmp_path: Path, change: Callable[[Path], object], named: str) -> None:
    for name in ("ant/0", "ant/1", "bee/0", "bee/1"):
        write(tmp_path / "some" / f"{name}.png")
    change(tmp_path / "some")
    refused(f"folder:{tmp_path / 'some'}", named, DataError)


@pytest.mark.parametrize("call", [validate_dataset, load_dataset])
@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("cifar11", "'cifar10'"),
        ("npz:", "'npz:PATH'"),
        ("hf", "'hf:NAME[:SUBSET]'"),
        ("digits:8", "'digits'"),
        ("folder:none", "none"),
        ("table:none.csv", "none.csv"),
        ("npz:none.npz", "data-dir"),
        ("tiny-imagenet200-subset", "tiny-imagenet200-subset.npz"),
    ],
)
def test_words(call: Callable[[str], object], word: str, named: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        call(word)
    assert named in str(error.value)
