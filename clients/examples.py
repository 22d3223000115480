"""A client of a run with its examples, checked as a whole before it trains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl import randomness
from bfl.closing.base import held_back_count
from bfl.configuration import Configuration
from bfl.data.datasets import Dataset, Reading, cached_dataset
from bfl.data.datasets.reading import AS_STORED, SUMMED
from bfl.errors import ConfigurationError, DataError, public
from bfl.federation.outgoing import is_private
from bfl.federation.wire import Positions, TrainTask
from bfl.learning.personalizations import PersonalModel
from clients.node import Node

if TYPE_CHECKING:
    from bfl.learning.training.trainer import LocalTrainer


@dataclass
class PreparedClient:
    """A client of a run, as this process plays it.

    Attributes:
        examples: (N,) positions of the examples that it trains on.
        held_back: (M,) positions of its examples that it never trains on, ``calibration-share`` of
            its own, drawn once in a run.
        labels: The labels of the training data, counted from its first class.
        targets: The answers of other tasks in their place.
        known_examples: How many examples it trains on, as far as the server may know it.
        personal_model: The network of its personal model, where it has one.
        trainer: Trains its network, once that has been built.
        features: Those that a closing adds up, of examples held back or not, with the digest of the
            posterior whose they are.
    """

    node: Node
    configuration: Configuration
    data: Dataset
    examples: Positions
    held_back: Positions
    labels: npt.NDArray[Any]
    targets: npt.NDArray[np.float32] | None
    classes: int
    known_examples: int
    personal_model: str = ""
    trainer: LocalTrainer | None = None
    features: dict[bool, tuple[str, list[npt.NDArray[np.float32]]]] = field(default_factory=dict)


def prepare_client(node: Node, task: TrainTask, configuration: Configuration) -> PreparedClient:
    """Return the client of a task with its examples, or raise what is wrong with them."""
    if where := node.dataset:
        data = own_data(node.dataset, own_reading(configuration.keys.reading))
    else:
        dataset, folder, reading = node.shared_dataset(configuration.keys)
        data = cached_dataset(dataset, folder, reading)
        where = f"{dataset} in {folder}" if folder else dataset
    positions = _positions(task, data, node, configuration)
    examples, held_back = divide_examples(positions, task, configuration)
    first_class, classes = own_classes(configuration, task, node)
    labels = data.train_labels - first_class if first_class else data.train_labels
    check_labels(labels[examples], classes, f"client {task.partition_id}, {where}")
    targets = None
    if data.train_targets is not None:
        targets = np.asarray(data.trained_on, np.float32)
    client = PreparedClient(
        node, configuration, data, examples, held_back, labels, targets, classes, int(examples.size)
    )
    if configuration.hides_measurements:
        client.known_examples = examples_under_privacy(task, node, configuration)
    if isinstance(configuration.personalization, PersonalModel):
        words = configuration.personalization.assignment.words(node.num_partitions)
        client.personal_model = words[task.partition_id]
    return client


def _positions(
    task: TrainTask, data: Dataset, node: Node, configuration: Configuration
) -> Positions:
    problem, positions, size = "", task.examples, len(data.train_labels)
    if positions is None:
        if node.dataset:
            return np.arange(size)
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
    elif positions.min() < 0 or positions.max() >= size:
        problem = "is asked to train on examples that are not in its data"
    elif configuration.example_privacy.private and np.unique(positions).size < positions.size:
        problem = (
            "is asked to train on an example twice, which would count twice, and example-privacy "
            f"'{configuration.example_privacy.name}' is that of one that counts once"
        )
    if problem:
        raise public(ConfigurationError(f"client {task.partition_id} {problem}"))
    return positions


def divide_examples(
    positions: Positions, task: TrainTask, configuration: Configuration
) -> tuple[Positions, Positions]:
    """Return which of its examples a client trains on, and which it holds back."""
    count = held_back_count(positions.size, configuration.held_back_share)
    if count <= 0:
        return positions, positions[:0]
    generator = randomness.generator(configuration.keys.seed, "held-back", task.partition_id)
    order = generator.permutation(positions.size)
    return positions[np.sort(order[count:])], positions[np.sort(order[:count])]


def own_classes(configuration: Configuration, task: TrainTask, node: Node) -> tuple[int, int]:
    """Return the first of the client's classes among the labels of its data, and their number."""
    if node.dataset:
        if not configuration.shared.partial:
            return 0, task.num_classes
        reading = own_reading(configuration.keys.reading)
        return 0, cached_dataset(node.dataset, "", reading).num_classes
    dataset = cached_dataset(*node.shared_dataset(configuration.keys))
    if not dataset.tasks:
        return 0, task.num_classes
    own_task = dataset.task_of_each(node.num_partitions)[task.partition_id]
    return own_task.first_class, own_task.num_classes


def check_labels(labels: npt.NDArray[Any], classes: int, where: str) -> None:
    """Refuse labels that are not from 0 to ``classes`` − 1, all at once.

    A step would fail on the first that it meets; where single examples are private, whether it has
    drawn one is what nobody may learn. So the DataError names the ranges, and no example.
    """
    if not labels.size:
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise DataError(
            f"{where}: the training labels are from {low} to {high}, and the run has {classes} "
            f"classes; allowed: 0 to {classes - 1}"
        )


def examples_under_privacy(task: TrainTask, node: Node, configuration: Configuration) -> int:
    """Return all that a client says of itself where its update is private: what is known."""
    if task.examples is None:
        # Privacy of single examples does not hide how many there are.
        hidden = is_private(configuration.outgoing)
        own = count_declared_examples(node, own_reading(configuration.keys.reading), private=hidden)
    else:
        own = int(task.examples.size)
    return own - held_back_count(own, configuration.held_back_share)


def count_declared_examples(node: Node, reading: Reading, *, private: bool) -> int:
    """Return how many examples a node says it has: 1 for any number that is to stay unknown.

    ``reading`` decides how many are for training.
    """
    if not node.dataset:
        return 0
    if private or node.private:
        return 1
    return len(cached_dataset(node.dataset, "", reading).train_labels)


def own_data(location: str, reading: Reading = AS_STORED) -> Dataset:
    """Return the data that a node holds by itself: all of them are its own."""
    dataset = cached_dataset(location, "", reading)
    sums_follow = dataset.encoding and reading.table_columns == SUMMED
    if dataset.numbered_here and not sums_follow:
        raise public(
            DataError(
                "its own data do not name all classes of the run, so that other nodes may number "
                "them otherwise; allowed there: a classes.txt in a folder of images, labels that "
                "count from 0 in an archive; of a table the run's key table-columns names them"
            )
        )
    return dataset


def own_reading(reading: Reading) -> Reading:
    """Return how a node's own data are read: they are all of one site, which trains."""
    return replace(reading, test_sites="")


def reading_of_query(query: Mapping[str, Any], node: Node) -> Reading:
    """Return how the run reads a node's data; a private node adds up no columns of its table."""
    reading = own_reading(Reading.of(query)) if node.dataset else Reading.of(query)
    would_add_up = node.private and reading.table_columns == SUMMED
    return replace(reading, table_columns="") if would_add_up else reading
