"""The server's own images: which they are, and that clients and pre-training do without them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bfl.configuration import resolve
from bfl.data.datasets import load_dataset
from bfl.data.datasets.server_data import ServerData
from bfl.data.datasets.subset import train_positions
from bfl.errors import ConfigurationError
from bfl.learning.pretraining import split_off
from strategies.application.data import divide
from strategies.application.preflight import check_before_start
from strategies.federation import Federation

FEDERATION = Federation(nodes={0: 10, 1: 11, 2: 12}, own_examples={0: 0, 1: 0, 2: 0})
HELD_BACK: dict[str, Any] = {"server-data": "held-back"}


def own_images(**values: Any) -> ServerData:
    given = {key.replace("_", "-"): value for key, value in values.items()}
    found = divide(resolve({**HELD_BACK, **given}), load_dataset("digits"), FEDERATION).own
    assert found is not None
    return found


@pytest.fixture
def archive(tmp_path: Path) -> Any:
    def write(name: str, side: int = 8, highest: int = 9) -> str:
        labels = np.arange(60) % (highest + 1)
        images = np.zeros((60, side, side, 1), np.uint8)
        np.savez(tmp_path / name, x_train=images, y_train=labels, x_test=images, y_test=labels)
        return f"npz:{tmp_path / name}"

    return write


def test_they_have_the_mixture_of_classes_and_the_seed_picks_them() -> None:
    assert divide(resolve({}), load_dataset("digits"), FEDERATION).own is None
    labels = load_dataset("digits").train_labels
    own = own_images(server_examples=200.0)
    assert own.images.shape == (200, 8, 8, 1)
    np.testing.assert_array_equal(own.labels, labels[own.held_back])
    shares = np.bincount(own.labels, minlength=10) / 200 - np.bincount(labels) / labels.size
    assert np.abs(shares).max() < 1 / 200
    again = own_images(server_examples=200.0, clients=7, partition="shards", shards_per_client=4)
    np.testing.assert_array_equal(own.held_back, again.held_back)
    assert set(own.held_back) != set(own_images(server_examples=200.0, seed=1).held_back)


@pytest.mark.parametrize("train_examples", [0.0, 400.0])
def test_every_share_is_of_the_images_that_are_used(train_examples: float) -> None:
    dataset = load_dataset("digits")
    values = {"train-examples": train_examples, "server-examples": 0.25, "unused-examples": 0.25}
    configuration = resolve({**HELD_BACK, **values})
    used = train_positions(dataset, train_examples)
    divided = divide(configuration, dataset, FEDERATION)
    own, clients = divided.own, divided.used
    assert own is not None
    train, validation = split_off(dataset, 0.2, 0.25, clients)
    assert own.held_back.size == round(0.25 * used.size)
    assert own.unused.size == round(0.25 * used.size)
    assert train.size + validation.size == round(0.2 * clients.size)
    assert validation.size == round(0.25 * round(0.2 * clients.size))
    assert {*own.held_back, *own.unused, *clients} == set(used)
    assert {*train, *validation} <= set(clients)
    assert not {*own.held_back, *own.unused} & set(clients)


def test_another_data_set_leaves_the_clients_all_of_theirs(archive: Any) -> None:
    dataset = load_dataset("digits")
    values = {"server-data": archive("own.npz"), "server-examples": 20.0}
    divided = divide(resolve(values), dataset, FEDERATION)
    own = divided.own
    assert own is not None
    assert own.images.shape == (20, 8, 8, 1)
    assert own.held_back.size == 0
    larger = own_images(server_data=archive("larger.npz", side=16), server_examples=20.0)
    assert larger.images.shape == own.images.shape
    np.testing.assert_array_equal(np.bincount(own.labels), np.full(10, 2))
    assert sum(divided.sizes) == dataset.train_labels.size


def test_what_does_not_go_with_the_data_set_is_refused(archive: Any) -> None:
    with pytest.raises(ConfigurationError, match="has the label 11, and dataset digits has 10"):
        own_images(server_data=archive("many.npz", highest=11))
    # The run is judged on its test images.
    word = archive("mixed.npz")
    arrays = dict(np.load(word.removeprefix("npz:")))
    arrays["x_train"][7] = load_dataset("digits").test_images[5]
    np.savez(word.removeprefix("npz:"), **arrays)
    with pytest.raises(ConfigurationError, match="1 of its 60 images are test images of"):
        own_images(server_data=word, server_examples=0.0)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"server-data": "held-bak"}, "server-data is 'held-bak'; allowed: '', 'held-back' or"),
        ({"server-data": "digits"}, "the data set that the clients train on"),
    ],
)
def test_wrong_words_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        resolve(values)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"server-examples": 1437.0}, "all 1437 training images would be held back"),
        ({"server-examples": 1430.0}, "only 7 training examples"),
        ({"server-examples": 1000.0, "unused-examples": 437.0}, "unused.*server-examples is 1437"),
        ({"server-data": "", "unused-examples": 40.0}, "unused-examples is 40 and server-data is"),
        ({"server-data": "other", "unused-examples": 1437.0}, "unused-examples is 1437: all 1437"),
    ],
)
def test_too_many_are_refused_before_the_start(
    values: dict[str, Any], said: str, archive: Any
) -> None:
    if values.get("server-data") == "other":
        values = {**values, "server-data": archive("other.npz")}
    with pytest.raises(ConfigurationError, match=said):
        check_before_start(resolve({**HELD_BACK, **values}), 10)


def test_nothing_can_be_held_back_from_nodes_with_data_of_their_own() -> None:
    federation = Federation(nodes={0: 10, 1: 11}, own_examples={0: 0, 1: 50})
    with pytest.raises(ConfigurationError, match="partitions 1 have data of their own"):
        divide(resolve(HELD_BACK), load_dataset("digits"), federation)
