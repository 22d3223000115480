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
WORDS = {"y_train": np.array(["a", "b", "a", "b"]), "y_test": np.array(["a", "b"])}

ARCHIVES: dict[str, tuple[dict[str, Any], str]] = {
    "one missing": ({"y_test": None}, "y_test missing"),
    "two missing": ({"x_train": None, "y_train": None}, "x_train, y_train missing"),
    "flat images": ({"x_train": np.zeros((4, 60), np.uint8)}, "x_train has the shape (4, 60)"),
    "videos": ({"x_test": np.zeros((2, 1, 5, 4, 3), np.uint8)}, "x_test has the shape"),
    "no images": ({"x_train": IMAGES[:0], "y_train": np.zeros(0, int)}, "x_train is empty"),
    "no images but labels": ({"x_test": IMAGES[:0]}, "x_test is empty"),
    "object images": ({"x_train": np.array([None] * 4, object)}, "x_train cannot be read"),
    "object labels": ({"y_test": np.array([1, "a"], object)}, "y_test cannot be read"),
    "nan pixels": ({"x_test": np.full((2, 5, 4, 3), np.nan)}, "x_test[0, 0, 0, 0] is nan"),
    "infinite pixels": ({"x_test": np.full((2, 5, 4, 3), np.inf)}, "x_test[0, 0, 0, 0] is inf"),
    "negative pixels": ({"x_test": -np.ones((2, 5, 4, 3))}, "x_test"),
    "bright pixels": ({"x_test": np.full((2, 5, 4, 3), 256)}, "x_test"),
    "other size": ({"x_test": np.zeros((2, 4, 5, 3), np.uint8)}, "x_test are (4, 5, 3)"),
    "other channels": ({"x_test": np.zeros((2, 5, 4), np.uint8)}, "x_test are (5, 4, 1)"),
    "channels first": ({"x_train": np.zeros((4, 3, 6, 5), np.uint8)}, "transpose(0, 2, 3, 1)"),
    "grey, channels first": ({"x_test": np.zeros((2, 1, 4, 4), np.uint8)}, "transpose"),
    "bands first": ({"x_test": np.zeros((2, 13, 64, 64), np.uint8)}, "transpose"),
    "scalar labels": ({"y_test": np.array(1)}, "y_test"),
    "one-hot": ({"y_train": np.eye(3)[[2, 0, 1, 0]]}, "y_train"),
    "too few labels": ({"y_train": np.array([0, 1, 2])}, "y_train"),
    "too many labels": ({"y_test": np.array([0, 1, 2])}, "y_test"),
    "negative train label": ({"y_train": np.array([0, 1, 2, -1])}, "y_train"),
    "negative test label": ({"y_test": np.array([0, -3])}, "y_test"),
    "unseen class": ({"y_test": np.array([0, 3])}, "y_test"),
    "huge label": ({"y_test": np.array([0, 2**63], np.uint64)}, "y_test[1] is 9223"),
    "one class": ({"y_train": np.zeros(4, int)}, "y_train"),
    "stray label": ({"y_train": np.array([0, 99_999, 1, 0])}, "y_train[1] is the label 99999"),
    "too few names": ({"class_names": np.array(["a", "b"])}, "y_train"),
    "names twice": ({"class_names": np.array(["a", "b", " a"])}, "class_names"),
    "numbers as names": ({"class_names": np.arange(3)}, "class_names"),
    "half a class": ({"y_train": np.array([0, 0.5, 1, 2])}, "y_train[1] is 0.5"),
    "missing class": ({"y_train": np.array([0, 1, 2, np.nan])}, "y_train[3] is nan"),
    "one kind and another": ({"y_test": np.array(["a", "b"])}, "y_test holds texts"),
    "unseen word": ({**WORDS, "y_test": np.array(["a", "dog"])}, "y_test[1] is 'dog'"),
    "no name": ({**WORDS, "class_names": np.array(["a", "c"])}, "y_train[1] is 'b'"),
    "no word": ({**WORDS, "y_train": np.array(["a", " ", "b", "a"])}, "y_train[1] is empty"),
    "escaped": ({**WORDS, "y_test": np.array(["a", "\x1b[2J"])}, "y_test[1] is '[2J'"),
    "latin bytes": ({"y_train": np.array([b"\xe4", b"b", b"b", b"b"])}, "y_train"),
    "dates": ({"y_train": np.zeros(4, "M8[D]")}, "y_train"),
    "gaps": ({"y_train": np.array([1, 2, 5, 1]), "y_test": np.array([1, 5])}, "y_train begins"),
    "from one and zero": ({"y_train": np.array([1, 2, 3, 1])}, "y_train begins at the label 1"),
    "sites": ({"site_train": np.array(["n", "s", "n"])}, "site_train has the shape (3,)"),
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


TARGET = Reading(target="outcome", left_out="site", test_share=0.25)
NUMBERS = Reading(target="age", task="regression")
TABLES: dict[str, tuple[dict[str, Any], Reading, str]] = {
    "no target": ({}, Reading(), "the key target"),
    "another target": ({}, Reading(target="outcomes"), "'outcome'"),
    "another column left out": ({}, Reading(target="outcome", left_out="sites"), "'site'"),
    "missing number": ({"age": [*range(38), np.nan, 1.0]}, TARGET, "row 39 "),
    "missing text": ({"stage": ["i"] * 4 + [None] + ["ii"] * 35}, TARGET, "row 5 "),
    "missing class": ({"outcome": ["well"] * 9 + [None] + ["ill"] * 30}, TARGET, "row 10 "),
    "infinite": ({"age": [np.inf, *range(39)]}, TARGET, "row 1 "),
    "one class": ({"outcome": ["well"] * 40}, TARGET, "'well'"),
    "one number": ({"outcome": np.full(40, 3)}, TARGET, "'3'"),
    "no class": ({"outcome": np.linspace(0, 1, 40)}, TARGET, 'task="regression"'),
    "no number": ({"age": [*range(39), "n/k"]}, NUMBERS, "'n/k'"),
    "no numbers": ({"age": ["x"] * 40}, NUMBERS, 'task="classification"'),
    "nothing to predict": ({"age": np.ones(40)}, NUMBERS, "'age'"),
    "decimal commas": ({"age": [f"{n},5" for n in range(40)]}, TARGET, "'0,5'"),
    "names": ({"stage": [f"p{n}" for n in range(40)]}, TARGET, "columns-left-out"),
    "half names": ({"age": [*range(20), *map("n{}".format, range(20))]}, TARGET, "'age'"),
    "too large": ({"age": np.repeat([1e308, -1e308], 20)}, TARGET, "'age'"),
    "dates": ({"age": pd.date_range("2020-01-01", periods=40)}, TARGET, "'age' holds dates"),
    "lists": ({"age": [[0.5, n] for n in range(40)]}, TARGET, "'age'"),
    "ragged lists": ({"age": [[0.5] * (1 + n % 3) for n in range(40)]}, TARGET, "'age'"),
    "records": ({"age": [{"x": n} for n in range(40)]}, TARGET, "'age'"),
    "bytes": ({"age": [b"x"] * 40}, TARGET, "'age'"),
    "lists of answers": ({"outcome": [[1]] * 40}, TARGET, "'outcome'"),
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


@pytest.mark.parametrize("outcome", [0, None])
@pytest.mark.parametrize("age", [np.nan, np.inf])
def test_a_remedy_is_named_where_it_helps(age: float, outcome: int | None, tmp_path: Path) -> None:
    path = tmp_path / "some.parquet"
    frame = {
        "age": [age, *range(39)],
        "site": [*range(40)],
        "outcome": [outcome, *([0, 1] * 20)][:40],
    }
    pd.DataFrame(frame).astype({"outcome": "Int64"}).to_parquet(path)
    with pytest.raises(DataError) as found:
        load_dataset(f"table:{path}", "", TARGET)
    remedies = {
        "columns-left-out": Reading(target="outcome", left_out="age"),
        'missing="mean"': Reading(target="outcome", missing="mean"),
    }
    for words, reading in remedies.items():
        if words in str(found.value):
            assert len(load_dataset(f"table:{path}", "", reading).train_images)
        else:
            refused(f"table:{path}", "row 1 ", DataError, reading)


SOUND = "age,outcome\n" + "1,ill\n2,well\n" * 5
FILES: dict[str, tuple[str, str, str]] = {
    "no Parquet": ("some.parquet", "no table", "cannot be read"),
    "empty": ("empty.csv", "", "cannot be read"),
    "no rows": ("rows.csv", "age,outcome\n", "no rows"),
    "column twice": ("twice.csv", "age," + SOUND.replace("\n", "\n3,")[:-2], "'age'"),
    "semicolons": ("some.csv", SOUND.replace(",", ";"), "';'"),
    "latin": ("latin.csv", SOUND.replace("ill", "\u00fc"), "UTF-8"),
    "a longer row": ("longer.csv", SOUND.replace("1,ill", "1,ill,2", 1), "cannot be read"),
    "a later longer row": ("later.csv", SOUND + "1,well,2\n", "cannot be read"),
    "one row": ("row.csv", "age,outcome\n1,ill\n", "test-share"),
}


@pytest.mark.parametrize(("name", "text", "named"), FILES.values(), ids=FILES)
def test_files_that_are_no_tables(tmp_path: Path, name: str, text: str, named: str) -> None:
    (tmp_path / name).write_text(text, encoding="latin-1")
    refused(f"table:{tmp_path / name}", named, DataError, Reading(target="outcome"))


LINES = "file,species\nant/0.png,ant\nbee/0.png,bee\nant/1.png,ant\nbee/1.png,bee\n"


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


FOLDERS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "no classes": (lambda root: (emptied(root, "ant", "bee"), write(root / "1.png")), "", "CLASS"),
    "one class": (lambda root: emptied(root, "bee"), "", "train_labels"),
    "damaged": (lambda root: write(root / "bee/1.png", b"\x89PNG"), "", "bee/1.png"),
    "no image": (lambda root: write(root / "wasp/1.dcm", b"dicom"), "", "wasp"),
    "deeper": (lambda root: write(root / "wasp/site/1.png"), "", "wasp/site/1.png"),
    "far deeper": (
        lambda root: (emptied(root, "ant", "bee"), write(root / "a/b/c/1.png")),
        "",
        "a/b/c/1.png",
    ),
    "other names": (lambda root: write(root / "classes.txt", "ant\nbees\n"), "", "'bees'"),
    "a name twice": (lambda root: write(root / "classes.txt", "ant\nant \n"), "", "classes.txt"),
    "no lines": (lambda root: None, "species", "labels.csv"),
    "another target": (lambda root: write(root / "labels.csv", LINES), "spezies", "'species'"),
    "no target": (lambda root: write(root / "labels.csv", LINES), "", "the key target"),
    "another file": (
        lambda root: write(root / "labels.csv", LINES.replace("bee/1", "be/1")),
        "species",
        "'bee/1.png'",
    ),
    "a file twice": (
        lambda root: write(root / "labels.csv", LINES.replace("ant/1", "ant/0")),
        "species",
        "'ant/0.png'",
    ),
    "a file twice, composed": (
        lambda root: (
            write(root / "labels.csv", "file,species\ne\u0301.png,ant\n\u00e9.png,bee\n"),
            emptied(root, "ant", "bee"),
            write(root / "\u00e9.png"),
        ),
        "species",
        "two lines",
    ),
    "two files of one name": (
        lambda root: (
            write(root / "labels.csv", LINES),
            *(write(root / f"{name}.png") for name in ("e\u0301", "\u00e9")),
        ),
        "species",
        "xe9.png",
    ),
    "a file without": (
        lambda root: write(root / "labels.csv", LINES[: LINES.index("bee/1")]),
        "species",
        "'bee/1.png'",
    ),
}


@pytest.mark.parametrize(("change", "target", "named"), FOLDERS.values(), ids=FOLDERS)
def test_folders(tmp_path: Path, change: Callable[[Path], object], target: str, named: str) -> None:
    for name in ("ant/0", "ant/1", "bee/0", "bee/1"):
        write(tmp_path / "some" / f"{name}.png")
    change(tmp_path / "some")
    refused(f"folder:{tmp_path / 'some'}", named, DataError, Reading(target=target))


@pytest.mark.parametrize("call", [validate_dataset, load_dataset])
@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("cifar11", "'cifar10'"),
        ("fashon-mnist", "'fashion-mnist'"),
        ("npz", "'npz:PATH'"),
        ("npz:", "'npz:PATH'"),
        ("hf", "'hf:NAME[:SUBSET]'"),
        ("digits:8", "'digits'"),
        ("mnist:x", "'mnist'"),
        ("folder:none", "none"),
        ("table:none.csv", "none.csv"),
        ("npz:none.npz", "'data-dir'"),
        ("tiny-imagenet200-subset", "tiny-imagenet200-subset.npz"),
        ("tiny-imagenet200-subset", "'data-dir'"),
    ],
)
def test_words(call: Callable[[str], object], word: str, named: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        call(word)
    assert named in str(error.value)
