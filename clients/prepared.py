"""Clients of a run as this process plays them: read and checked once, for all rounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from flwr.app import Context, Message

from bfl.configuration import Configuration
from bfl.federation.wire import EXTRAS, Positions, TrainTask
from clients.examples import client_examples, labels_and_classes
from clients.guard import deadline, refuse
from clients.local_round import Option
from clients.node import Node
from clients.options import options_of
from clients.process import TrainingData, cached_configuration, own_data, shared_data

if TYPE_CHECKING:
    from bfl.learning.training.trainer import LocalTrainer


@dataclass
class PreparedClient:
    """A client of a run, as this process plays it.

    Attributes:
        node: Its node.
        configuration: The run's configuration.
        data: The data that its examples are of.
        examples: (N,) positions of the examples that it trains on.
        labels: The labels of the data, counted from its first class.
        classes: The number of its classes.
        options: What it does besides training, in their order.
        trainer: What trains its network, once it has been built.
    """

    node: Node
    configuration: Configuration
    data: TrainingData
    examples: Positions
    labels: npt.NDArray[Any]
    classes: int
    options: tuple[type[Option], ...]
    trainer: LocalTrainer | None = None


def prepared(message: Message, context: Context, task: TrainTask) -> PreparedClient:
    """Return the client that a task is for.

    Raises:
        BflError: The node refuses the task, or the client cannot train on what it is asked to.
    """
    beside = EXTRAS in message.content
    examples = None if task.examples is None else task.examples.tobytes()
    node = tuple(sorted(context.node_config.items()))
    key = (node, task.configuration, task.partition_id, task.num_classes, examples, beside)
    clients = _clients(context.run_id)
    if key not in clients:
        clients[key] = _prepared(Node.of(context), task, beside)
    return clients[key]


@lru_cache(maxsize=1)
def _clients(run_id: int) -> dict[Any, PreparedClient]:
    """Return a run's clients of this process; those of the run before are forgotten."""
    return {}


def _prepared(node: Node, task: TrainTask, beside: bool) -> PreparedClient:
    configuration = cached_configuration(task.configuration, node.plugins)
    refuse(task, node, configuration)
    with deadline(configuration.keys.client_timeout):
        data = (
            own_data(node.dataset, configuration.keys.reading)
            if node.dataset
            else shared_data(*node.shared_dataset(configuration.keys))
        )
        examples = client_examples(task, data, node, configuration)
        labels, classes = labels_and_classes(task, data, node, configuration, examples)
    options = options_of(configuration, node, task.partition_id, beside)
    return PreparedClient(node, configuration, data, examples, labels, classes, options)
