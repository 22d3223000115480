"""Which classes a client's head has."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from bfl.configuration import resolve
from bfl.federation.wire import TrainTask
from clients.examples import own_classes
from clients.node import Node

CLASSES = (3, 2, 4)
"""Of the two tasks, and of a node's own data."""


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """Return the words of three small archives."""
    for number, classes in enumerate(CLASSES):
        labels = np.arange(12) % classes
        images = np.zeros((12, 4, 4, 1), np.uint8)
        np.savez(
            tmp_path / f"{number}.npz", x_train=images, y_train=labels, x_test=images, y_test=labels
        )
    return [f"npz:{tmp_path}/{number}.npz" for number in range(len(CLASSES))]


def classes_of(shared: str, client: int, words: list[str], **node: Any) -> tuple[int, int]:
    values = {"dataset": f"tasks:{words[0]}:1,{words[1]}:1", "evaluated-by": "clients"}
    if shared == "all":
        values = {"dataset": words[0]}
    configuration = resolve({"strategy": "fedavg", "shared": shared, "model": "cnn1", **values})
    config = {"partition-id": client, "num-partitions": 2, "allow-run-paths": True, **node}
    context = Context(1, 1, config, RecordDict(), {})
    task = TrainTask(1, client, "{}", 3, None)
    return own_classes(configuration, task, Node.of(context))


def test_a_head_has_the_classes_of_its_task_or_of_the_nodes_own_data(words: list[str]) -> None:
    assert classes_of("convolutions", 0, words) == (0, 3)
    assert classes_of("convolutions", 1, words) == (3, 2)
    assert classes_of("convolutions", 1, words, dataset=words[2]) == (0, 4)


def test_where_all_travels_the_classes_are_the_runs(words: list[str]) -> None:
    assert classes_of("all", 1, words) == (0, 3)
    assert classes_of("all", 1, words, dataset=words[2]) == (0, 3)
