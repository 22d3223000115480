"""The step partition of FedBE's published code, in which images can stand twice."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bfl.data.partitions.base import Indices, grouped_by_class, partitions
from bfl.data.partitions.step import Step
from bfl.errors import ConfigurationError


@partitions.register("step-overlapping")
class StepOverlapping(Step):
    """Every client has shards of the examples sorted by class, and a few examples of each class.

    The examples, class after class, are cut into clients times ``major-classes`` shards, and each
    client draws ``major-classes`` of them. Both can be of one class, and a shard of two classes
    where the shards do not divide them. On top of that every client has ``minor-examples`` of each
    class, which no other client has on top of its shards; but they lie in some shard as well, so
    such an image stands with two clients, or twice with one.

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

    def _too_few(self, label: int, size: int, clients: int) -> ConfigurationError:
        return ConfigurationError(
            f"partition '{self.name}' with clients = {clients} and minor-examples = "
            f"{self.minor_examples:g}: class {label} has only {size} examples, and every client "
            "gets others of them; lower minor-examples or clients"
        )
