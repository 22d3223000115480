"""Neighbours that exchange masks: everybody, or, of many clients, each with some."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bfl import randomness

FEWEST_CLIENTS = 3
"""Least number of clients: of two, each knows the other's update from the sum and its own."""


@dataclass(frozen=True)
class Neighbourhood:
    """Numbers of clients that share a client's secrets, and of those that can give them back.

    Attributes:
        neighbours: How many other clients each client exchanges masks with; all, if there are no
            more.
        share: The share of a client and its neighbours that is needed to take its masks off; more
            than half of them always are.
    """

    neighbours: int
    share: float

    def __str__(self) -> str:
        """Return it as the keys of a run; the same text for the same neighbourhood alone."""
        return f"masked-neighbours={self.neighbours}, masked-threshold={self.share!r}"

    def threshold(self, members: int) -> int:
        """Return how many of so many, a client and its neighbours, are needed."""
        return max(members // 2 + 1, math.ceil(self.share * members - 1e-9))

    def of(self, client: int, clients: Sequence[int], label: str) -> list[int]:
        """Return a client's neighbours, sorted; the relation is symmetric.

        With more than ``neighbours`` others, clients stand in a circle, shuffled by the label, and
        each has the same number of neighbours on either side: a Harary graph, which falls apart
        only if as many clients are missing as each has neighbours.

        Args:
            client: The client.
            clients: All clients, itself among them, sorted.
            label: What the round is called; clients and server shuffle alike.

        Source: Bell et al. (2020), "Secure single-server aggregation with (poly)logarithmic
        overhead", section 3.
        """
        others = [other for other in clients if other != client]
        if len(others) <= self.neighbours:
            return others
        digest = hashlib.sha256(label.encode()).digest()
        generator = randomness.generator(int.from_bytes(digest[:16], "little"), "neighbours")
        circle = np.array(clients)[generator.permutation(len(clients))]
        place = int(np.flatnonzero(circle == client)[0])
        steps = np.arange(1, self.neighbours // 2 + 1)
        near = np.concatenate([place + steps, place - steps]) % len(circle)
        return sorted(int(other) for other in circle[near])
