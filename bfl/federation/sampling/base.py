"""What a sampling is: the clients of a round as a function of the seed and the round alone."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bfl.registry import Component, Registry


class Sampling(Component, ABC):
    """Picks the clients that take part in a round.

    It has no memory: resuming needs none, and Flower's random node ids play no part.
    """

    @abstractmethod
    def sample(self, seed: int, server_round: int, clients: int) -> list[int]:
        """Return the partition ids of a round's clients, sorted, at least one and none twice.

        Args:
            seed: The run's seed.
            server_round: The round, from 1.
            clients: The number of clients K; their partition ids are 0 to K − 1.
        """

    def expected_share(self, clients: int) -> float:
        """Return the mean share of the clients that take part in a round, over what is drawn.

        By default that of one round: a sampling that takes now more and now fewer says its own.

        Args:
            clients: The number of clients K, at least 1.
        """
        return len(self.sample(0, 1, clients)) / clients


samplings: Registry[Sampling] = Registry("sampling", "bfl.federation.sampling")
