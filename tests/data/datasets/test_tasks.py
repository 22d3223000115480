"""Several data sets at once, with classes of their own."""

from pathlib import Path

import numpy as np
import pytest

from bfl.configuration import resolve
from bfl.data.datasets import (
    Reading,
    absolute_dataset,
    cached_dataset,
    load_dataset,
    portable_dataset,
    validate_dataset,
)
from bfl.data.images import pad
from bfl.errors import ConfigurationError
from strategies.application.data import divide
from strategies.application.preflight import check_before_start
from strategies.federation import Federation


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with two archives: 3 classes of colour, and 2 of smaller grey images."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, side, channels, classes, count in (("a", 6, 3, 3, 30), ("b", 4, 1, 2, 20)):
        images = rng.integers(0, 256, (count, side, side, channels), dtype=np.uint8)
        labels = np.arange(count) % classes
        half = count // 2
        train = {"x_train": images[:half], "y_train": labels[:half]}
        np.savez(f"{name}.npz", **train, x_test=images[half:], y_test=labels[half:])
    return tmp_path


WORD = "tasks:npz:a.npz:2,npz:b.npz:3"


def test_labels_follow_each_other_and_images_get_one_shape(folder: Path) -> None:
    joined, first, second = (load_dataset(word) for word in (WORD, "npz:a.npz", "npz:b.npz"))
    joined.check()
    assert joined.num_classes == 5
    assert joined.image_shape == (6, 6, 3)
    assert [(t.first_class, t.num_classes, t.clients) for t in joined.tasks] == [
        (0, 3, 2),
        (3, 2, 3),
    ]
    np.testing.assert_array_equal(joined.train_images[:15], first.train_images)
    grey = np.repeat(pad(second.train_images, 6), 3, axis=-1)
    np.testing.assert_array_equal(joined.train_images[15:], grey)
    np.testing.assert_array_equal(joined.train_labels[:15], first.train_labels)
    np.testing.assert_array_equal(joined.train_labels[15:], second.train_labels + 3)
    np.testing.assert_array_equal(joined.test_labels[15:], second.test_labels + 3)


def test_words_are_absolute_and_portable(folder: Path) -> None:
    word, _ = absolute_dataset("tasks:npz:a.npz:2, npz:b.npz")
    assert word == f"tasks:npz:{folder / 'a.npz'}:2,npz:{folder / 'b.npz'}"
    assert absolute_dataset(word)[0] == word
    assert portable_dataset(word) == "tasks:npz:a.npz:2,npz:b.npz"
    assert load_dataset(word, "", Reading(8, image_fit="pad")).image_shape == (8, 8, 3)


def test_what_is_no_list_of_tasks_is_refused() -> None:
    for entries in ("digits:2", "digits:0,digits:2", "digits:2,digit:3"):
        with pytest.raises(ConfigurationError, match=r"two data sets or more|'digits'"):
            validate_dataset(f"tasks:{entries}")


def test_a_client_has_images_of_its_own_task_alone(folder: Path) -> None:
    """Each with one client, to train and to test; the last task is for all that are left."""
    values = {"strategy": "fedper", "dataset": WORD.removesuffix(":3"), "partition": "dirichlet"}
    configuration = resolve({**values, "min-partition-size": 1})
    dataset = cached_dataset(configuration.keys.dataset, "")
    nodes = Federation(dict.fromkeys(range(5), 1), dict.fromkeys(range(5), 0))
    divided = divide(configuration, dataset, nodes)
    tests = divided.test
    assert tests is not None
    for held, labels in ((divided.train, dataset.train_labels), (tests, dataset.test_labels)):
        positions = [part for part in held if part is not None]
        np.testing.assert_array_equal(np.sort(np.concatenate(positions)), np.arange(25))
        for client, part in enumerate(positions):
            assert set(labels[part] < 3) == {client < 2}


@pytest.mark.parametrize(("amount", "sizes"), [(10, [2] * 5), (0.4, [3, 3, 2, 1, 1]), (12, None)])
def test_a_number_of_training_images_is_the_same_for_clients_of_every_task(
    amount: float, sizes: list[int] | None, folder: Path
) -> None:
    """However many classes a task has; a share is one of every class of them all."""
    configuration = resolve({"strategy": "fedper", "dataset": WORD, "train-examples": amount})
    dataset = cached_dataset(configuration.keys.dataset, "")
    nodes = Federation(dict.fromkeys(range(5), 1), dict.fromkeys(range(5), 0))
    parts = [p for p in divide(configuration, dataset, nodes).train if p is not None]
    found = [part.size for part in parts]
    assert max(found) - min(found) <= 1 if sizes is None else found == sizes
    assert sum(found) == round(amount if amount >= 1 else amount * 25)
    for client, part in enumerate(parts):
        labels = dataset.train_labels[part]
        assert set(labels < 3) == {client < 2}


@pytest.mark.parametrize(
    ("changes", "clients", "said"),
    [
        ({}, 4, r"is 'npz:.*a.npz:2,npz:.*b.npz:3', for 5 clients, and there are 4"),
        ({"dataset": WORD.removesuffix(":3")}, 2, r"all 2 clients have .* before 'npz:.*b.npz'"),
        ({"shared": "all"}, 5, "shared is 'all', heads and all"),
        ({"train-examples": 20}, 5, r"12 are for the 3 clients .*b.npz.* at most 16"),
    ],
)
def test_tasks_that_do_not_fit_are_refused_before_the_first_round(
    changes: dict[str, str], clients: int, said: str, folder: Path
) -> None:
    values = {"strategy": "fedper", "dataset": WORD, "model": "mlp", "output-dir": str(folder)}
    check_before_start(resolve({**values, "name": "sound"}), 5)
    with pytest.raises(ConfigurationError, match=said):
        check_before_start(resolve({**values, **changes}), clients)
