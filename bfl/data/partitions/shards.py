"""Every client has many examples of a few classes: none of the others, or a few of each."""

from __future__ import annotations

import math
from collections import Counter
from typing import ClassVar

import numpy as np
from pydantic import Field

from bfl.data.partitions.base import Indices, Partition, group_by_class, partitions
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
        if self.shards_per_client > num_classes:
            raise self._refusal(clients, f"shards-per-client from 1 to {num_classes} (classes)")
        if not num_classes <= clients * self.shards_per_client <= num_examples:
            raise self._refusal(
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
            raise self._refusal(
                clients, f"at most {available} shards, as the smallest class has {sizes.min()}"
            )
        pieces: list[list[Indices]] = [[] for _ in range(clients)]
        shards = clients * self.shards_per_client
        for examples, owners in _assign_classes(labels, sizes, shards, clients, generator):
            for client, shard in zip(owners, np.array_split(examples, len(owners)), strict=True):
                pieces[client].append(shard)
        return [np.concatenate(shards) for shards in pieces]

    def _refusal(self, clients: int, allowed: str) -> ConfigurationError:
        return ConfigurationError(
            f"partition '{self.name}' with clients = {clients} and shards-per-client = "
            f"{self.shards_per_client}: a shard has one class, and is not empty; allowed: {allowed}"
        )


@partitions.register("step")
class Step(Partition):
    """Every client has a few major classes, and a few examples of each of the other, minor classes.

    A class is the major one of clients in proportion to its size, of at least one of them. These
    share what the others, of whom it is a minor class, leave of it. Which clients have which major
    classes is drawn uniformly, as for ``shards``.

    The default is the share of FedBE: of CIFAR-10, without 10,000 images of the server's, 10 of
    4,000, so that 10 clients have 2 classes of 1,960 images and 8 of 10. It gives the numbers of
    the paper's other partitions too: 2 · 351 + 198 · 1 for 100 clients on Tiny-ImageNet, and, with
    ``major-classes`` = 5, 5 · 61 + 95 · 1 for 100 clients on CIFAR-100.

    Source: FedBE (2021), section 5.1, "inspired by" Cao et al. (2019), section 5.6 and appendix
    C.7. Its code has ``step-overlapping``; here each image lies with one client, as the paper's
    numbers say.
    """

    major_classes: int = Field(2, ge=1)
    """Number of classes that a client has many images of."""
    minor_examples: float = Field(0.0025, gt=0.0)
    """Number of images that a client has of each of its other classes: below 1 a share of the
    class's images, rounded and at least one; from 1 a number."""

    def check(self, num_examples: int, num_classes: int, clients: int) -> None:
        """Check that there are classes enough for a client, and clients enough for the classes."""
        super().check(num_examples, num_classes, clients)
        least = math.ceil(num_classes / clients)
        if not least <= self.major_classes <= num_classes:
            raise ConfigurationError(
                f"partition '{self.name}' with clients = {clients}: major-classes is "
                f"{self.major_classes}, and each of the {num_classes} classes is a major one of at "
                f"least one client; allowed: major-classes from {least} to {num_classes}"
            )

    def assign(
        self, labels: Indices, clients: int, generator: np.random.Generator
    ) -> list[Indices]:
        """Return the indices of every client's major and minor classes."""
        classes, sizes = np.unique(labels, return_counts=True)
        majors = self.major_classes * clients
        if np.minimum(sizes, clients).sum() < majors:
            raise self._too_few(int(classes[sizes.argmin()]), int(sizes.min()), clients)
        pieces: list[list[Indices]] = [[] for _ in range(clients)]
        owned = _assign_classes(labels, sizes, majors, clients, generator)
        for label, (examples, owners) in zip(classes, owned, strict=True):
            others = [client for client in range(clients) if client not in owners]
            minor = self._minor(examples.size)
            more = minor + 1 if others else 1
            if examples.size < minor * len(others) + more * len(owners):
                raise self._too_few(int(label), examples.size, clients)
            few, many = np.split(examples, [minor * len(others)])
            for client, part in zip(others, few.reshape(len(others), minor), strict=True):
                pieces[client].append(part)
            for client, part in zip(owners, np.array_split(many, len(owners)), strict=True):
                pieces[client].append(part)
        return [np.concatenate(parts) for parts in pieces]

    def _minor(self, size: int) -> int:
        if self.minor_examples < 1:
            return max(1, math.floor(self.minor_examples * size + 0.5))
        return round(self.minor_examples)

    def _too_few(self, label: int, size: int, clients: int) -> ConfigurationError:
        return ConfigurationError(
            f"partition '{self.name}' with clients = {clients} and minor-examples = "
            f"{self.minor_examples:g}: class {label} has only {size} examples, too few for all of "
            "its clients; lower minor-examples or clients"
        )


@partitions.register("step-overlapping")
class StepOverlapping(Step):
    """Every client has shards of the examples sorted by class, and a few examples of each class.

    The examples, class after class, are cut into clients times ``major-classes`` shards, and each
    client draws ``major-classes`` of them, which can be of one class. Besides, every client has
    ``minor-examples`` of each class, which lie in some shard as well: such an image stands with two
    clients, or twice with one.

    Source: the code of Chen and Chao (2021), https://github.com/hongyouc/FedBE, whose paper has
    the partition ``step``. There the server's images are taken out of the shards, which so differ a
    little in size, and 10 examples of each class go to every client.
    """

    disjoint: ClassVar[bool] = False

    def check(self, num_examples: int, num_classes: int, clients: int) -> None:
        """Check that there are examples enough for the shards."""
        super(Step, self).check(num_examples, num_classes, clients)
        shards = clients * self.major_classes
        if shards > num_examples:
            raise ConfigurationError(
                f"partition '{self.name}' with clients = {clients} and major-classes = "
                f"{self.major_classes}: {shards} shards of {num_examples} training examples would "
                f"leave some empty; allowed: clients times major-classes of at most {num_examples}"
            )

    def assign(
        self, labels: Indices, clients: int, generator: np.random.Generator
    ) -> list[Indices]:
        """Return the indices of every client's shards and of its examples of all classes."""
        ordered = group_by_class(labels, generator)
        shards = np.array_split(ordered, clients * self.major_classes)
        drawn = generator.permutation(len(shards)).reshape(clients, self.major_classes)
        pieces = [[shards[shard] for shard in of_client] for of_client in drawn]
        for label in np.unique(labels):
            members = np.flatnonzero(labels == label)
            few = self._minor(members.size)
            if members.size < clients * few:
                raise self._too_few(int(label), members.size, clients)
            chosen = generator.choice(members, clients * few, replace=False)
            for parts, part in zip(pieces, chosen.reshape(clients, few), strict=True):
                parts.append(part)
        return [np.concatenate(parts) for parts in pieces]


def _assign_classes(
    labels: Indices, sizes: Indices, shards: int, clients: int, generator: np.random.Generator
) -> list[tuple[Indices, list[int]]]:
    """Return each class's examples, in random order, with the clients that get a shard of them."""
    counts = allot_shards(sizes, shards, clients, generator)
    owners = deal_classes(counts, clients, generator)
    members = np.split(group_by_class(labels, generator), np.cumsum(sizes)[:-1])
    return list(zip(members, owners, strict=True))


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
    ties = generator.permutation(len(sizes))
    largest_first = sorted(
        (-float(size) / count, ties[c], c)
        for c, size in enumerate(sizes)
        for count in range(1, min(clients, int(size)))
    )
    more = Counter(c for _, _, c in largest_first[: shards - len(sizes)])
    return [1 + more[c] for c in range(len(sizes))]


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
    hands: list[set[int]] = [set() for _ in range(clients)]
    for shard, client in enumerate(owner):
        hands[client].add(of_class[shard])
    pairs = generator.integers(len(owner), size=(SWAPS_PER_SHARD * len(owner), 2)).tolist()
    for one, other in pairs:
        giver, taker = hands[owner[one]], hands[owner[other]]
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
