"""A client of a run with its examples, checked as a whole before it trains."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from flwr.app import Context, Message

from bfl import randomness
from bfl.closing.base import held_back_count
from bfl.configuration import Configuration
from bfl.data.datasets import Reading, cached_dataset
from bfl.data.datasets.reading import SUMMED
from bfl.errors import BflError, ConfigurationError, DataError, public
from bfl.experiments.run.network import check_images
from bfl.federation.client_metrics import NUM_EXAMPLES
from bfl.federation.node_description import PERSONAL_MODELS
from bfl.federation.outgoing import is_private
from bfl.federation.wire import DATA_DIR, DATASET, NUM_CLASSES, Positions, TrainTask
from bfl.learning.models import create_architecture
from clients.node import Node
from clients.process import (
    TrainingData,
    cached_configuration,
    deadline,
    own_data,
    refuse,
    shared_data,
)

if TYPE_CHECKING:
    from bfl.learning.training.trainer import LocalTrainer


@dataclass
class PreparedClient:
    """A client of a run, as this process plays it.

    Attributes:
        examples: (N,) positions of the examples that it trains on.
        held_back: (M,) positions of its examples that it never trains on, ``calibration-share`` of
            its own, drawn once in a run.
        labels: The labels of the data, counted from its first class.
        trainer: Trains its network, once that has been built.
    """

    node: Node
    configuration: Configuration
    data: TrainingData
    examples: Positions
    held_back: Positions
    labels: npt.NDArray[Any]
    classes: int
    trainer: LocalTrainer | None = None


def cached_client(message: Message, context: Context, task: TrainTask) -> PreparedClient:
    """Return the client that a task is for, as it was prepared if it is asked for the same again.

    Raises:
        BflError: The node refuses the task, or the client cannot train on what it is asked to.
    """
    examples = None if task.examples is None else task.examples.tobytes()
    node = tuple(sorted(context.node_config.items()))
    # One text for all clients of the process, each of whose messages brings one of its own.
    key = (node, sys.intern(task.configuration), task.num_classes, examples)
    clients = _clients(context.run_id)
    # One a partition, so that no server fills the memory by asking for other examples each round.
    before, client = clients.get(task.partition_id, (None, None))
    if client is None or before != key:
        client = _prepare_client(Node.of(context), task)
        clients[task.partition_id] = (key, client)
    return client


@lru_cache(maxsize=1)
def _clients(run_id: int) -> dict[int, tuple[Any, PreparedClient]]:
    """Return a run's clients of this process, by partition id, with what each was asked for."""
    return {}


def _prepare_client(node: Node, task: TrainTask) -> PreparedClient:
    configuration = cached_configuration(task.configuration, node.plugins_folder)
    refuse(task, node, configuration)
    with deadline(configuration.keys.client_timeout):
        if where := node.dataset:
            data = own_data(node.dataset, own_reading(configuration.keys.reading))
        else:
            dataset, folder, reading = node.shared_dataset(configuration.keys)
            data = shared_data(dataset, folder, reading)
            where = f"{dataset} in {folder}" if folder else dataset
        positions = _own_examples(task, data, node, configuration)
        examples, held_back = divide_examples(positions, task, configuration)
        first_class, classes = own_classes(configuration, task, node)
        labels = data.labels - first_class if first_class else data.labels
        check_labels(labels[examples], classes, f"client {task.partition_id}, {where}")
    return PreparedClient(node, configuration, data, examples, held_back, labels, classes)


def divide_examples(
    positions: Positions, task: TrainTask, configuration: Configuration
) -> tuple[Positions, Positions]:
    """Return which of its examples a client trains on, and which it holds back."""
    kept = held_back_count(positions.size, configuration.held_back_share)
    if kept <= 0:
        return positions, positions[:0]
    generator = randomness.generator(configuration.keys.seed, "held-back", task.partition_id)
    order = generator.permutation(positions.size)
    return positions[np.sort(order[kept:])], positions[np.sort(order[:kept])]


def _own_examples(
    task: TrainTask, data: TrainingData, node: Node, configuration: Configuration
) -> Positions:
    """Return the positions of all examples in the data that are the client's.

    Raises:
        ConfigurationError: Nobody has said which they are: all clients would train on all of the
            run's data. Or the server has named some of a node's own, or some that are not there, or
            one twice where single examples are private.
    """
    problem, positions = "", task.examples
    if positions is None:
        if node.dataset:
            return np.arange(data.size)
        positions = np.zeros(0, np.int64)
    if not positions.size:
        problem = (
            "has no examples: the server has assigned none (partition in the Strategy's "
            "client_options) and the node has no data of its own (dataset in its configuration)"
        )
    elif node.dataset:
        problem = (
            "has data of its own, all of which it trains on, and the server names examples; "
            "allowed: none for this client in the partition of the Strategy's client_options"
        )
    elif positions.min() < 0 or positions.max() >= data.size:
        problem = "is asked to train on examples that are not in its data"
    elif configuration.example_privacy.private and np.unique(positions).size < positions.size:
        problem = (
            "is asked to train on an example twice, which would count twice, and example-privacy "
            f"'{configuration.example_privacy.name}' is that of one that counts once"
        )
    if problem:
        raise public(ConfigurationError(f"client {task.partition_id} {problem}"))
    return positions


def own_classes(configuration: Configuration, task: TrainTask, node: Node) -> tuple[int, int]:
    """Return the first of the client's classes among the labels of its data, and their number.

    Raises:
        ConfigurationError: The run's tasks are not for so many clients.
    """
    if node.dataset:
        if not configuration.shared.partial:
            return 0, task.num_classes
        reading = own_reading(configuration.keys.reading)
        return 0, cached_dataset(node.dataset, "", reading).num_classes
    dataset = cached_dataset(*node.shared_dataset(configuration.keys))
    if not dataset.tasks:
        return 0, task.num_classes
    mine = dataset.task_of_each(node.num_partitions)[task.partition_id]
    return mine.first_class, mine.num_classes


def check_labels(labels: npt.NDArray[Any], classes: int, where: str) -> None:
    """Refuse labels that are none of the classes, all at once.

    A step would fail on the first that it meets; where single examples are private, whether it has
    drawn one is what nobody may learn.

    Args:
        classes: The number of classes; labels count from 0.

    Raises:
        DataError: Naming the data and the ranges, and no example.
    """
    if not labels.size:
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise DataError(
            f"{where}: the training labels are from {low} to {high}, and the run has {classes} "
            f"classes; allowed: 0 to {classes - 1}"
        )


def find_data(query: Mapping[str, Any], node: Node) -> TrainingData | None:
    """Return the data that a SuperNode would train on; None where the query does not tell of any.

    Args:
        query: What the query before the first round says.
        node: The node that is asked. A simulated one has the server's, and is not asked.

    Raises:
        BflError: They cannot be had there.
    """
    dataset = str(query.get(DATASET, ""))
    if node.simulated or not (node.dataset or dataset):
        return None
    if node.reads_run_paths and DATA_DIR not in query:
        return None  # it is asked again, and told where they are
    reading = find_reading(query, node)
    if node.dataset:
        return own_data(node.dataset, reading)
    return shared_data(*node.place_of(dataset, str(query.get(DATA_DIR, ""))), reading)


def find_reading(query: Mapping[str, Any], node: Node) -> Reading:
    """Return how the run reads a node's data; a private node adds up no columns of its table."""
    reading = own_reading(Reading.of(query)) if node.dataset else Reading.of(query)
    return replace(reading, columns="") if node.private and reading.columns == SUMMED else reading


def own_reading(reading: Reading) -> Reading:
    """Return how a node's own data are read: they are all of one site, which trains."""
    return replace(reading, test_sites="")


def data_problem(query: Mapping[str, Any], node: Node) -> str:
    """Return why the data that a SuperNode would train on cannot be had there, or nothing.

    They are read, as in the first round, which then need not read them. The server learns which
    they are; the rest stands in the node's own log. A simulated node has the server's.
    """
    try:
        data = find_data(query, node)
        for line in data.said if data else ():
            print(line, file=sys.stderr)
    except BflError as error:
        if error.public:
            return str(error)
        traceback.print_exception(error)
        which = "its own data" if node.dataset else f"the run's data set '{query[DATASET]}'"
        return f"{which} cannot be had there; its own log says where it has looked"
    return ""


def label_problem(query: Mapping[str, Any], node: Node) -> str:
    """Return why the labels of a node's own data are not the run's, or nothing.

    In a deployment the server learns that they are not; the rest stands in the node's own log.
    """
    classes = query.get(NUM_CLASSES)
    if not node.dataset or classes is None:
        return ""
    labels = own_data(node.dataset, find_reading(query, node)).labels
    if cached_dataset(node.dataset, "", find_reading(query, node)).numbered_here:
        return ""  # a table of its own, whose classes are told apart by name
    try:
        check_labels(labels, int(classes), node.dataset)
    except DataError as error:
        if node.simulated:
            return str(error)
        traceback.print_exception(error)
        return (
            f"some training labels of its own data are none of the run's {classes} classes, 0 to "
            f"{int(classes) - 1}; its own log says which data"
        )
    return ""


def personal_model_problem(query: Mapping[str, Any], node: Node) -> str:
    """Return why a node's own personal model cannot be trained on the data there, or nothing.

    Args:
        query: What the query before the first round says.
        node: The node that is asked; its data can be had.
    """
    word = node.personal_model
    if not word or query.get(PERSONAL_MODELS) is not True:
        return ""
    data = find_data(query, node)
    if data is None:
        return ""
    try:
        check_images(word, create_architecture(word), data.image_shape)
    except ConfigurationError as error:
        return f"personal-model in its node configuration: {error}"
    return ""


def own_examples(node: Node, reading: Reading, *, private: bool) -> int:
    """Return how many examples a node says it has: 1 for any number that is to stay unknown.

    Args:
        reading: How the run reads its data, which decides how many are for training.
        private: Whether the number is to stay unknown.
    """
    if not node.dataset:
        return 0
    return (
        1
        if private or node.private
        else len(cached_dataset(node.dataset, "", reading).train_labels)
    )


def private_metrics(
    task: TrainTask, node: Node, configuration: Configuration
) -> dict[str, float | int]:
    """Return all that a client says of itself where its update is private: what is known."""
    given = task.examples
    # Privacy of single examples does not hide how many there are.
    hidden = is_private(configuration.outgoing)
    own = (
        own_examples(node, own_reading(configuration.keys.reading), private=hidden)
        if given is None
        else int(given.size)
    )
    return {NUM_EXAMPLES: own - held_back_count(own, configuration.held_back_share)}
