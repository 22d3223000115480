"""Which client trains on which of the run's images."""

from __future__ import annotations

from bfl import randomness
from bfl.configuration import Configuration
from bfl.data.datasets import Dataset
from bfl.data.datasets.server_data import ServerData, without
from bfl.data.datasets.subset import train_positions
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
