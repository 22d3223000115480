"""A share of the clients, drawn anew in each round."""

from __future__ import annotations

from pydantic import Field

from bfl import randomness
from bfl.federation.sampling.base import Sampling, samplings


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
        generator = randomness.generator(seed, "clients", server_round)
        chosen = generator.choice(clients, size=self._count(clients), replace=False)
        return sorted(int(i) for i in chosen)

    def expected_share(self, clients: int) -> float:
        """Return the share of every round, without a draw."""
        return self._count(clients) / clients

    def _count(self, clients: int) -> int:
        return min(clients, max(1, round(self.fraction_train * clients)))
