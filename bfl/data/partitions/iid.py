"""Every client's data look alike."""

from __future__ import annotations

import numpy as np

from bfl.data.partitions.base import Indices, Partition, grouped_by_class, partitions


@partitions.register("iid", aliases=("uniform",))
class Iid(Partition):
    """Every client gets nearly the same number of examples of each class.

    The examples are dealt out like cards, class after class and in random order within a class:
    the numbers of examples of two clients differ by at most one, in each class and in total.
    Source: "we assign each client a uniform distribution over the 10 classes", Fischer et al.
    (2024), section 3.1.
    """

    def assign(
        self, labels: Indices, clients: int, generator: np.random.Generator
    ) -> list[Indices]:
        """Return the dealt indices; chance decides who gets the examples that are left over."""
        cards = grouped_by_class(labels, generator)
        return [cards[seat::clients] for seat in generator.permutation(clients)]
