"""Samplings: the clients of a round, as a function of the seed and the round alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from pydantic import Field

from bfl import randomness
from bfl.errors import ConfigurationError
from bfl.registry import Component, Registry


class Sampling(Component, ABC):
    """Picks the clients that take part in a round."""

    @abstractmethod
    def sample(self, seed: int, server_round: int, clients: int) -> list[int]:
        """Return the round's clients: one or more partition ids below ``clients``, sorted."""

    def closing_clients(self, clients: int) -> Sequence[int]:
        """Return the clients whose data the closing round adds up: partition ids, sorted."""
        return range(clients)


samplings: Registry[Sampling] = Registry("sampling", "bfl.federation.sampling")


@samplings.register("single")
class SingleSampling(Sampling):
    """One client in all rounds and the closing: what it has without the others."""

    single_client: int = Field(
        0, ge=0, description="partition id of the only client that takes part in any round"
    )

    def sample(self, seed: int, server_round: int, clients: int) -> list[int]:
        """Return the client's partition id."""
        if self.single_client >= clients:
            raise ConfigurationError(
                f"single-client is {self.single_client}; allowed: 0 to {clients - 1}, as there are "
                f"{clients} clients"
            )
        return [self.single_client]

    def closing_clients(self, clients: int) -> Sequence[int]:
        """Return the client alone: it learns nothing of the others."""
        return self.sample(0, 0, clients)


@samplings.register("random", aliases=("uniform",))
class RandomSampling(Sampling):
    """A share of the clients, drawn without replacement in each round.

    ``fraction-train`` · K of them, rounded to the nearest and at least 1.

    Source: McMahan et al. (2017), Algorithm 1.
    """

    fraction_train: float = Field(
        1.0, gt=0.0, le=1.0, description="share of the clients that train in a round"
    )

    def sample(self, seed: int, server_round: int, clients: int) -> list[int]:
        """Return the round's partition ids, sorted."""
        count = min(clients, max(1, round(self.fraction_train * clients)))
        generator = randomness.generator(seed, "clients", server_round)
        return sorted(int(i) for i in generator.choice(clients, size=count, replace=False))
