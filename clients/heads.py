"""Heads that a client keeps where not all of its network travels, and the classes it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from bfl.configuration import Configuration
from bfl.data.datasets.cache import cached_dataset
from bfl.federation.parts import Arrays
from bfl.federation.wire import TrainTask
from bfl.learning.shared import Division
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.posterior import VECTORS
from clients.node import Node

if TYPE_CHECKING:
    from bfl.learning.networks.network import Network


@dataclass(frozen=True)
class Head:
    """The part of a client's network that stays on it; nothing where all of it travels.

    Attributes:
        manifest: The parameters that travel.
        division: What travels and what stays; None where all of it travels.
        own: What has stayed, as the round begins.
    """

    manifest: Manifest
    division: Division | None = None
    own: Posterior | None = None

    @classmethod
    def of(cls, configuration: Configuration, network: Network, state: Arrays) -> Head:
        """Return a client's head: what it has kept, or as its network begins.

        Args:
            configuration: The run's configuration.
            network: The client's network.
            state: What the client has kept; empty: nothing yet.
        """
        if not configuration.shared.partial:
            return cls(network.manifest)
        division = configuration.shared.division(network.manifest)
        own = (
            Posterior(**{name: state[name] for name in VECTORS})
            if state
            else division.head_of(network.initial_posterior(configuration.keys.seed))
        )
        return cls(division.shared, division, own)

    def joined(self, received: Posterior) -> Posterior:
        """Return the network's posterior, of what was received and what has stayed."""
        if self.division is None or self.own is None:
            return received
        return self.division.joined(received, self.own)

    def split(self, learnt: Posterior) -> tuple[Posterior, Arrays]:
        """Return what of a trained posterior may be sent, and what is kept."""
        if self.division is None:
            return learnt, {}
        kept = self.division.head_of(learnt)
        return self.division.shared_of(learnt), {name: getattr(kept, name) for name in VECTORS}


def own_classes(configuration: Configuration, task: TrainTask, node: Node) -> tuple[int, int]:
    """Return the first of the client's classes among the labels of its data, and their number.

    Raises:
        ConfigurationError: The run's tasks are not for so many clients.
    """
    if node.dataset:
        own, reading = configuration.shared.partial, configuration.keys.reading
        return 0, cached_dataset(node.dataset, "", reading).num_classes if own else task.num_classes
    dataset = cached_dataset(*node.shared_dataset(configuration.keys))
    if not dataset.tasks:
        return 0, task.num_classes
    mine = dataset.task_of_each(node.num_partitions)[task.partition_id]
    return mine.first_class, mine.num_classes


def counted_from(labels: npt.NDArray[Any], first: int) -> npt.NDArray[Any]:
    """Return labels counted from a client's first class; the same array where that is 0."""
    return labels - first if first else labels
