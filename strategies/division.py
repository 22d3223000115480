"""Which client trains on which of the run's images."""

from __future__ import annotations

from collections.abc import Sequence

from bfl import randomness
from bfl.configuration import Configuration
from bfl.data.datasets import Dataset
from bfl.data.datasets.server_data import ServerData, without
from bfl.data.datasets.subset import train_positions
from bfl.data.partitions import own_test_split
from bfl.errors import ConfigurationError
from bfl.federation.wire import Positions
from strategies.federation import Federation


def split(
    configuration: Configuration,
    dataset: Dataset,
    federation: Federation,
    own: ServerData | None = None,
) -> list[Positions | None]:
    """Return the examples of each client, by partition id; None for nodes with data of their own.

    Args:
        configuration: The run's configuration.
        dataset: Its data set.
        federation: The nodes.
        own: The server's own images, which no client gets.

    Raises:
        ConfigurationError: The data cannot be split as configured.
    """
    keys = configuration.keys
    if all(federation.own_examples.values()):
        return [None] * federation.size
    used = clients_positions(configuration, dataset, own)
    parts = configuration.partition.split(
        dataset.train_labels[used], federation.size, randomness.generator(keys.seed, "partition")
    )
    return [
        None if federation.own_examples[partition_id] else used[part]
        for partition_id, part in enumerate(parts)
    ]


def clients_positions(
    configuration: Configuration, dataset: Dataset, own: ServerData | None
) -> Positions:
    """Return the positions of the training images that clients share."""
    used = train_positions(dataset, configuration.keys.train_examples)
    return without(used, own.held_back) if own else used


def own_test_positions(
    configuration: Configuration,
    dataset: Dataset,
    partition: Sequence[Positions | None],
) -> list[Positions | None] | None:
    """Return the test examples of each client; None where clients do not judge.

    Args:
        configuration: The run's configuration.
        dataset: Its data set, with the test examples that are used.
        partition: The training examples of each client; None for nodes with data of their own.

    Raises:
        ConfigurationError: A client with a personal model has no test examples.
    """
    if configuration.keys.judged_by != "clients":
        return None
    known = [part for part in partition if part is not None]
    if not known:
        return [None] * len(partition)
    generator = randomness.generator(configuration.keys.seed, "own-test")
    split = iter(own_test_split(dataset.train_labels, known, dataset.test_labels, generator))
    found = [None if part is None else next(split) for part in partition]
    empty = [str(k) for k, part in enumerate(found) if part is not None and not part.size]
    if empty and configuration.personalization.active:
        raise ConfigurationError(
            f"judged-by is 'clients', and the clients of partitions {', '.join(empty)} have no "
            f"test examples to judge a personal model with; allowed: more of them (test-examples "
            f"is {configuration.keys.test_examples:g}), a more even partition, or "
            'judged-by="server"'
        )
    return found
