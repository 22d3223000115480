"""Division of the run's images among the clients, and digests of the data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from bfl import randomness
from bfl.configuration import Configuration
from bfl.configuration.configuration import says_nothing_measured
from bfl.data.datasets import Dataset
from bfl.data.datasets.base import digest_of
from bfl.data.datasets.server_data import ServerData, without
from bfl.data.datasets.subset import train_positions
from bfl.data.partitions import Partition, describe, own_test_split
from bfl.errors import ConfigurationError
from bfl.experiments.results.run_folder import without_numbers
from bfl.federation.wire import Positions
from strategies.federation import Federation


def data_digests(
    dataset: Dataset, federation: Federation, own: ServerData | None
) -> dict[str, str]:
    """Return a digest of the images and labels of each kind that the run uses.

    What nodes hold of their own they alone can see.

    Returns:
        ``train``, unless all nodes have data of their own; ``test``; and ``server``, the server's
        own images where what clients do without does not tell them: those of another data set, and
        those that are held back besides images that nobody has.
    """
    found = {}
    if not all(federation.own_examples.values()):
        found["train"] = dataset.train_digest
    found["test"] = dataset.test_digest
    if own and (own.unused.size or not own.held_back.size):
        labels = () if own.labels is None else (own.labels,)
        found["server"] = digest_of(own.images, *labels)
    return found


def split(
    configuration: Configuration,
    dataset: Dataset,
    federation: Federation,
    own: ServerData | None = None,
) -> list[Positions | None]:
    """Return the examples of each client, by partition id; None for nodes with data of their own.

    Raises:
        ConfigurationError: The data cannot be split as configured.
    """
    keys = configuration.keys
    if all(federation.own_examples.values()):
        return [None] * federation.size
    used = clients_positions(configuration, dataset, own, federation.size)
    if dataset.tasks:
        parts = _by_task(configuration, dataset, used, federation.size)
    elif dataset.train_columns:
        columns = {name: values[used] for name, values in dataset.train_columns.items()}
        generator = randomness.generator(keys.seed, "partition")
        given = dataset.train_labels[used], federation.size, generator, columns
        parts = [used[part] for part in configuration.partition.split(*given)]
    else:
        labels = dataset.train_labels[used].tobytes()
        drawn = _drawn(configuration.partition, labels, federation.size, keys.seed)
        parts = [used[part] for part in drawn]
    return [
        None if federation.own_examples[partition_id] else part
        for partition_id, part in enumerate(parts)
    ]


def _by_task(
    configuration: Configuration, dataset: Dataset, used: Positions, clients: int
) -> list[Positions]:
    """Return each client's examples: those of its task, split over the clients that have it."""
    assigned = dataset.task_of_each(clients)
    labels = dataset.train_labels[used]
    parts: list[Positions] = []
    for number, task in enumerate(dict.fromkeys(assigned)):
        positions = used[task.holds(labels)]
        counted = (dataset.train_labels[positions] - task.first_class).tobytes()
        mine = assigned.count(task)
        drawn = _drawn(configuration.partition, counted, mine, configuration.keys.seed, number)
        parts += [positions[part] for part in drawn]
    return parts


@lru_cache(maxsize=8)
def _drawn(
    partition: Partition, labels: bytes, clients: int, seed: int, *keyed: int
) -> tuple[Positions, ...]:
    """Return what ``partition.split`` gives for int64 labels, drawn once for all who ask alike."""
    generator = randomness.generator(seed, "partition", *keyed)
    return tuple(partition.split(np.frombuffer(labels, np.int64), clients, generator))


def check_partition(
    configuration: Configuration, dataset: Dataset, own: ServerData | None, clients: int
) -> None:
    """Raise if the data cannot be split over so many clients, or their tasks are not for them.

    Raises:
        ConfigurationError: Naming the keys.
    """
    used = clients_positions(configuration, dataset, own, clients)
    if not dataset.tasks:
        configuration.partition.check(len(used), dataset.num_classes, clients)
        return
    if not configuration.shared.partial:
        raise ConfigurationError(
            f"dataset '{configuration.keys.dataset}' has tasks with classes of their own, and "
            f"shared is '{configuration.shared.name}', heads and all; allowed: "
            'shared="convolutions", or another choice that leaves each client its head'
        )
    labels = dataset.train_labels[used]
    assigned = dataset.task_of_each(clients)
    for task in dict.fromkeys(assigned):
        examples = int(task.holds(labels).sum())
        configuration.partition.check(examples, task.num_classes, assigned.count(task))


def clients_positions(
    configuration: Configuration, dataset: Dataset, own: ServerData | None, clients: int
) -> Positions:
    """Return the positions of the training images that clients share; see ``train_positions``."""
    used = train_positions(dataset, configuration.keys.train_examples, clients)
    return without(used, own.without_clients) if own else used


def own_test_positions(
    configuration: Configuration, dataset: Dataset, partition: Sequence[Positions | None]
) -> list[Positions | None] | None:
    """Return the test examples of each client, by its site or to evaluate on; None for neither.

    Args:
        dataset: Its data set, with the test examples that are used.
        partition: The training examples of each client; None for nodes with data of their own.

    Raises:
        ConfigurationError: A client with a personal model or a head of its own has none.
    """
    by_clients = configuration.keys.evaluated_by == "clients"
    if not (by_clients or configuration.partition.names(dataset.train_columns)):
        return None
    known = [part for part in partition if part is not None]
    if not known:
        return [None] * len(partition)
    generator = randomness.generator(configuration.keys.seed, "own-test")
    assigned = configuration.partition.assign_tests(dataset.train_columns, dataset.test_columns)
    if assigned is not None:
        parts = [a for a, part in zip(assigned, partition, strict=True) if part is not None]
    else:
        parts = own_test_split(dataset.train_labels, known, dataset.test_labels, generator)
    split = iter(parts)
    found = [None if part is None else next(split) for part in partition]
    empty = [str(k) for k, part in enumerate(found) if part is not None and not part.size]
    if (
        empty
        and by_clients
        and (configuration.personalization.active or configuration.shared.partial)
    ):
        raise ConfigurationError(
            f"evaluated-by is 'clients', and the clients of partitions {', '.join(empty)} have no "
            "test examples to evaluate models of their own with; allowed: more of them "
            f"(test-examples is {configuration.keys.test_examples:g}), a more even partition, or "
            'evaluated-by="server"'
        )
    return found


def describe_partition(
    configuration: Configuration,
    dataset: Dataset,
    partition: Sequence[Positions | None],
    own: ServerData | None,
) -> dict[str, Any]:
    """Return who holds what of the run's data set, for the run's folder."""
    known = [part for part in partition if part is not None]
    described = describe(dataset.train_labels, known, dataset.num_classes)
    if names := configuration.partition.names(dataset.train_columns):
        described["names"] = list(names)
    # Whether the server has them or nobody does: runs whose clients have the same are pairs.
    if own and own.without_clients.size:
        kept = [own.without_clients]
        described["server"] = describe(dataset.train_labels, kept, dataset.num_classes)
    # Numbers of a client's examples and classes are its data, and no noise is on them.
    return without_numbers(described) if says_nothing_measured(configuration) else described
