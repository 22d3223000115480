"""What a client refuses before it trains: examples, labels, another personal model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from bfl.engine.flower import new_run
from bfl.federation.wire import TrainTask
from clients.client_app import train

CLASSES = 10
PRIVATE: dict[str, Any] = {
    "model": "mlp",
    "example-privacy": "dp-sgd",
    "round-retries": 0,
    "example-sampling-rate": 0.01,
}
SOUND = "KeyError"
"""What a task without a posterior fails of, once nothing is wrong with its examples."""


def archive(folder: Path, labels: Any) -> str:
    """Return the word of an archive whose training labels are given."""
    given = np.asarray(labels)
    images = np.zeros((given.size, 8, 8), np.uint8)
    path = folder / "site.npz"
    np.savez(path, x_train=images, y_train=given, x_test=images[:2], y_test=given[:2])
    return f"npz:{path}"


def asked(values: dict[str, Any], examples: Any, server_round: int = 1, **config: Any) -> str:
    """Return why a client fails that is asked to train, without a posterior to train on."""
    task = TrainTask(server_round, 0, json.dumps(values), CLASSES, examples)
    node = {"partition-id": 0, "num-partitions": 2, **config}
    context = Context(new_run({}).run_id, 1, node, RecordDict(), {})
    message = Message(RecordDict({"config": task.to_config()}), 1, "train")
    return str(train(message, context).error.reason)


@pytest.mark.parametrize("simulated", [True, False])
def test_one_label_too_many_fails_in_every_round_whatever_is_drawn(
    simulated: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 400 examples a step draws 4: failing with the one would say when it was drawn."""
    config = {"simulation": True} if simulated else {}
    labels = np.arange(400) % CLASSES
    sound = archive(tmp_path, labels)
    assert SOUND in asked(PRIVATE, None, dataset=sound, **config)
    labels[7] = 12
    capsys.readouterr()
    wrong = archive(tmp_path, labels)
    said = [asked(PRIVATE, None, number, dataset=wrong, **config) for number in range(1, 6)]
    assert len(set(said)) == 1
    # A deployment's server learns no range; the node's own log has all but the example.
    told = said[0] if simulated else capsys.readouterr().err
    assert f"client 0, {wrong}: the training labels are from 0 to 12" in told
    assert "the run has 10 classes; allowed: 0 to 9" in told
    if not simulated:
        assert "DataError (its message is in the client's own log)" in said[0]
        assert "to 12" not in said[0]
        assert str(tmp_path) not in said[0]


def test_a_label_of_an_example_that_is_not_the_clients_is_nothing_to_it(tmp_path: Path) -> None:
    labels = np.arange(40) % CLASSES
    labels[7] = 12
    values = {**PRIVATE, "dataset": archive(tmp_path, labels)}
    assert SOUND in asked(values, np.arange(8, 40), simulation=True)
    assert "the training labels are from 0 to 12" in asked(values, np.arange(40), simulation=True)


NOT_THERE = "is asked to train on examples that are not in its data"
OVERLAPPING = {"model": "mlp", "partition": "step-overlapping"}


@pytest.mark.parametrize(
    ("values", "examples", "problem"),
    [
        (PRIVATE, [0, 1, 1437], NOT_THERE),
        (PRIVATE, [-1, 3], NOT_THERE),
        (PRIVATE, [3, 5, 3], "is asked to train on an example twice"),
        (PRIVATE, [], "has no examples"),
        (PRIVATE, [3, 5], SOUND),
        (OVERLAPPING, [3, 5, 3], SOUND),
        ({**PRIVATE, "example-noise-multiplier": 0.0}, [3, 5, 3], SOUND),
    ],
)
def test_a_server_names_examples_that_are_there_and_private_ones_once(
    values: dict[str, Any], examples: list[int], problem: str
) -> None:
    """From a server the client takes positions in 1,437 digits, and from -1 on none."""
    assert problem in asked(values, np.array(examples, np.int64))


def test_a_server_names_none_of_a_nodes_own_examples(tmp_path: Path) -> None:
    """It would single one out, or have one count many times."""
    own = archive(tmp_path, np.arange(40) % CLASSES)
    for values in (PRIVATE, {"model": "mlp"}):
        assert SOUND in asked(values, None, dataset=own)
        said = asked(values, np.array([3]), dataset=own)
        assert "client 0 has data of its own, all of which it trains on" in said
