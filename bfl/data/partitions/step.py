"""Every client has many images of a few classes and a few images of all others."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from pydantic import Field

from bfl.data.partitions.base import Indices, Partition, grouped_by_class, partitions
from bfl.data.partitions.shards import allot_shards, deal_classes
from bfl.errors import ConfigurationError


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
        counts = allot_shards(sizes, majors, clients, generator)
        owners = deal_classes(counts, clients, generator)
        members = np.split(grouped_by_class(labels, generator), np.cumsum(sizes)[:-1])
        held: list[list[Indices]] = [[] for _ in range(clients)]
        for label, examples, owning in zip(classes, members, owners, strict=True):
            others = [client for client in range(clients) if client not in set(owning)]
            minor = self._minor(examples.size)
            more = minor + 1 if others else 1
            if examples.size < minor * len(others) + more * len(owning):
                raise self._too_few(int(label), examples.size, clients)
            few, many = np.split(examples, [minor * len(others)])
            for client, part in zip(others, few.reshape(len(others), minor), strict=True):
                held[client].append(part)
            for client, part in zip(owning, np.array_split(many, len(owning)), strict=True):
                held[client].append(part)
        return [np.concatenate(parts) for parts in held]

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
        ordered = grouped_by_class(labels, generator)
        shards = np.array_split(ordered, clients * self.major_classes)
        drawn = generator.permutation(len(shards)).reshape(clients, self.major_classes)
        held = [[shards[shard] for shard in of_client] for of_client in drawn]
        for label in np.unique(labels):
            members = np.flatnonzero(labels == label)
            few = self._minor(members.size)
            if members.size < clients * few:
                raise self._too_few(int(label), members.size, clients)
            chosen = generator.choice(members, clients * few, replace=False)
            for parts, part in zip(held, chosen.reshape(clients, few), strict=True):
                parts.append(part)
        return [np.concatenate(parts) for parts in held]
