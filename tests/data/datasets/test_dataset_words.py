"""The word in the configuration: parsing, cheap validation, and where archives are looked for."""

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from bfl.data.datasets import (
    Dataset,
    dataset_reads_path,
    dataset_sources,
    dataset_warnings,
    load_dataset,
    validate_dataset,
)
from bfl.data.datasets.hub import NamedSource
from bfl.errors import ConfigurationError, DataError

NAMED = [source.name for source in dataset_sources.classes() if issubclass(source, NamedSource)]
LOCAL = [
    source.name
    for source in dataset_sources.classes()
    if not source.location_form and source.name not in NAMED
]


def save_archive(path: Path, labels: int = 3) -> None:
    images = np.arange(labels * 2 * 2 * 1, dtype=np.uint8).reshape(labels, 2, 2, 1)
    names = np.arange(labels)
    np.savez(path, x_train=images, y_train=names, x_test=images[:1], y_test=names[:1])


def test_validation_does_not_read_the_archive(tmp_path: Path) -> None:
    (tmp_path / "broken.npz").write_text("no archive")
    validate_dataset(f"npz:{tmp_path / 'broken.npz'}")
    with pytest.raises(DataError, match="not a NumPy archive"):
        load_dataset(f"npz:{tmp_path / 'broken.npz'}")


def test_which_words_name_a_path() -> None:
    assert not dataset_reads_path("digits")
    tasks = ("tasks:digits:3,npz:x.npz", "tasks:hf:../b:3,digits")
    assert all(map(dataset_reads_path, (" NPZ : x.npz", "hf:owner/name", *tasks)))


def test_relative_archives_are_found_here_and_then_in_the_data_dir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_archive(tmp_path / "mine.npz")
    validate_dataset("npz:mine.npz", str(tmp_path))
    dataset = load_dataset("npz:mine.npz", str(tmp_path))
    assert (dataset.name, dataset.image_shape) == ("npz:mine.npz", (2, 2, 1))
    assert dataset.num_classes == 3
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    save_archive(tmp_path / "here" / "mine.npz", labels=4)
    assert load_dataset("npz:mine.npz", str(tmp_path)).num_classes == 4


@pytest.mark.parametrize(
    ("spelling", "word"), [("fashion-mnist", "Fashion_MNIST"), ("fashion_mnist", "fashion-mnist")]
)
def test_named_sets_come_from_either_spelling_of_the_archive(tmp_path, spelling, word) -> None:
    save_archive(tmp_path / f"{spelling}.npz")
    validate_dataset(word, tmp_path)
    dataset = load_dataset(word, tmp_path)
    assert dataset.name == "fashion-mnist"
    # All classes of the set count, also those of which the archive has no example.
    assert dataset.num_classes == 10
    assert dataset.class_names[1] == "Trouser"


@pytest.mark.parametrize("name", NAMED)
def test_named_sets_know_their_classes(name: str, tmp_path: Path) -> None:
    save_archive(tmp_path / f"{name}.npz")
    classes = {"cifar100": 100, "tiny-imagenet": 200, "tiny-imagenet200-subset": 200}
    assert load_dataset(name, tmp_path).num_classes == classes.get(name, 10)
    save_archive(tmp_path / f"{name}.npz", labels=201)
    with pytest.raises(DataError, match=f"{name}.npz: y_train"):
        load_dataset(name, tmp_path)


@pytest.mark.parametrize("name", LOCAL)
def test_what_needs_neither_a_file_nor_the_network_is_sound_and_always_the_same(name: str) -> None:
    validate_dataset(name)
    dataset, again = load_dataset(name), load_dataset(name)
    dataset.check()
    assert dataset.name == name
    assert (dataset.train_digest, dataset.test_digest) == (again.train_digest, again.test_digest)
    assert not dataset_warnings(dataset)


def test_digits_are_split_as_scikit_learn_splits_them() -> None:
    digits, whole = load_dataset("digits"), load_digits()
    images = np.rint(whole.images * (255 / 16)).astype(np.uint8)[..., np.newaxis]
    expected = train_test_split(
        images, whole.target, test_size=0.2, stratify=whole.target, random_state=0
    )
    found = (digits.train_images, digits.test_images, digits.train_labels, digits.test_labels)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert digits.class_names == tuple("0123456789")


def test_absent_classes_are_named() -> None:
    digits = load_dataset("digits")
    names = tuple(f"class {label}" for label in range(25))
    few = Dataset(**{**vars(digits), "class_names": names, "test_labels": digits.test_labels // 2})
    train, test = dataset_warnings(few)
    assert "15 of 25 classes: " + ", ".join(names[10:20]) + " and 5 more" in train
    assert "20 of 25 classes: class 5" in test


def test_a_misspelt_path_gets_the_nearest_of_its_kind(tmp_path: Path) -> None:
    (tmp_path / "scans").mkdir()
    for name in ("scan.csv", "dose.csv", "dose.txt", "unlike.csv"):
        (tmp_path / name).write_text("a\n")
    for given, meant in {"folder:scan": "scans", "table:dos.csv": "dose.csv"}.items():
        for word, data_dir in ((given, tmp_path), (given.replace(":", f":{tmp_path}/"), "")):
            with pytest.raises(ConfigurationError) as error:
                validate_dataset(word, data_dir)
            assert str(tmp_path / meant) in str(error.value).partition("did you mean")[2]
    with pytest.raises(ConfigurationError) as error:
        validate_dataset("table:z.csv", tmp_path)
    assert "did you mean" not in str(error.value)
    (tmp_path / "x.npz").touch()
    for kind, name in (("folder", "scans"), ("table", "dose.csv"), ("npz", "x.npz")):
        with pytest.raises(ConfigurationError, match=f"'{kind}:{tmp_path}/{name}'"):
            validate_dataset(str(tmp_path / name))


@pytest.mark.parametrize("word", ["d" * 300, f"table:{'e' * 300}", "table:pipe.csv"])
def test_a_word_that_can_be_no_file_is_refused(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.csv")
    with pytest.raises(ConfigurationError) as refused:
        load_dataset(word)
    assert "did you mean" not in str(refused.value)
