"""Every client holds a few classes only."""

from __future__ import annotations

import heapq

import numpy as np
from pydantic import Field

from bfl.data.partitions.base import Indices, Partition, grouped_by_class, partitions
from bfl.errors import ConfigurationError

SWAPS_PER_SHARD = 20
"""Tried exchanges per shard; the deal has mixed well before."""


@partitions.register("shards", aliases=("quantity-based-label-imbalance", "2-class"))
class Shards(Partition):
    """Every client gets shards of a fixed number of different classes (label imbalance).

    The data are cut into clients times ``shards-per-client`` shards, each of one class. A class
    gets shards in proportion to its size, at least one and at most one per client, and its
    examples are spread evenly over them; with equal classes and a number of shards that they
    divide, all shards are equal (CIFAR-10 with 10 clients: 20 shards of 2,500). Which client gets
    which classes is drawn uniformly from all deals that give no client a class twice.

    Source: the quantity-based label imbalance of Li et al. (2022), as used by Fischer et al.
    (2024), section 3.1.
    """

    shards_per_client: int = Field(2, ge=1)
    """Number of shards, each of another class, that a client gets."""

    def check(self, num_examples: int, num_classes: int, clients: int) -> None:
        """Check that there are classes enough for a client, and shards enough for the classes."""
        super().check(num_examples, num_classes, clients)
        shards = clients * self.shards_per_client
        if self.shards_per_client > num_classes:
            raise self._refused(clients, f"shards-per-client from 1 to {num_classes} (classes)")
        if not num_classes <= shards <= num_examples:
            raise self._refused(
                clients,
                f"clients times shards-per-client from {num_classes} (classes) to {num_examples} "
                "(examples)",
            )

    def assign(
        self, labels: Indices, clients: int, generator: np.random.Generator
    ) -> list[Indices]:
        """Return the indices of every client's shards."""
        sizes = np.unique(labels, return_counts=True)[1]
        available = int(np.minimum(sizes, clients).sum())
        if available < clients * self.shards_per_client:
            raise self._refused(
                clients, f"at most {available} shards, as the smallest class has {sizes.min()}"
            )
        counts = allot_shards(sizes, clients * self.shards_per_client, clients, generator)
        owners = deal_classes(counts, clients, generator)
        members = np.split(grouped_by_class(labels, generator), np.cumsum(sizes)[:-1])
        held: list[list[Indices]] = [[] for _ in range(clients)]
        for examples, owning in zip(members, owners, strict=True):
            for client, shard in zip(owning, np.array_split(examples, len(owning)), strict=True):
                held[client].append(shard)
        return [np.concatenate(shards) for shards in held]

    def _refused(self, clients: int, allowed: str) -> ConfigurationError:
        return ConfigurationError(
            f"partition '{self.name}' with clients = {clients} and shards-per-client = "
            f"{self.shards_per_client}: a shard has one class, and is not empty; allowed: {allowed}"
        )


def allot_shards(
    sizes: Indices, shards: int, clients: int, generator: np.random.Generator
) -> list[int]:
    """Return how many shards each class is cut into.

    Every class begins with one shard; the next one goes to the class whose shards are the largest
    (the highest-averages method), chance deciding between equals. So no other allotment makes the
    largest shard smaller.

    Args:
        sizes: The number of examples of each class (C,), all above 0.
        shards: The number of shards, at least C and at most the sum of min(size, clients).
        clients: The number of clients; a class never gets more shards.
    """
    counts = [1] * len(sizes)
    ties = generator.permutation(len(sizes))
    queue = [(-float(size), int(ties[c]), c) for c, size in enumerate(sizes)]
    heapq.heapify(queue)
    for _ in range(shards - len(sizes)):
        while True:
            _, tie, c = heapq.heappop(queue)
            if counts[c] < min(clients, int(sizes[c])):
                break
        counts[c] += 1
        heapq.heappush(queue, (-float(sizes[c]) / counts[c], tie, c))
    return counts


def deal_classes(
    counts: list[int], clients: int, generator: np.random.Generator
) -> list[list[int]]:
    """Return the clients that hold a shard of each class, no client twice for one class.

    Shards are handed round the table, class after class. Then random pairs of shards change hands
    wherever that gives nobody a class twice. These exchanges reach every allowed deal (Ryser 1957)
    and favour none, so the result is uniform over all of them.

    Args:
        counts: The number of shards of each class (C,), at most ``clients`` each.
        clients: The number of clients, which divides the sum of ``counts``.
    """
    classes = generator.permutation(len(counts))
    of_class = [int(c) for c in classes for _ in range(counts[c])]
    seats = generator.permutation(clients)
    owner = [int(seats[shard % clients]) for shard in range(len(of_class))]
    held: list[set[int]] = [set() for _ in range(clients)]
    for shard, client in enumerate(owner):
        held[client].add(of_class[shard])
    pairs = generator.integers(len(owner), size=(SWAPS_PER_SHARD * len(owner), 2)).tolist()
    for one, other in pairs:
        giver, taker = held[owner[one]], held[owner[other]]
        if of_class[one] in taker or of_class[other] in giver:
            continue
        giver.remove(of_class[one])
        taker.remove(of_class[other])
        giver.add(of_class[other])
        taker.add(of_class[one])
        owner[one], owner[other] = owner[other], owner[one]
    owners: list[list[int]] = [[] for _ in counts]
    for shard in generator.permutation(len(owner)):
        owners[of_class[shard]].append(owner[shard])
    return owners
