"""A share of the clients that makes fewer epochs than the others."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bfl import randomness
from bfl.federation.workloads.base import DrawnWorkload, workloads


@workloads.register("slow-share", aliases=("stragglers",))
class SlowShareWorkload(DrawnWorkload):
    """A share of all clients makes x ~ U{1..E} epochs, and the others make E.

    ``slow-share`` · K clients are slow, rounded to the nearest; which, and how slow, is drawn in
    each round or once. Where only some clients take part in a round, that is the share of the slow
    ones among them on average.

    Source: HBFL (2023), section 5.3.3, "we assign x epochs (chosen uniformly at random between
    [1, 5]) to 50%, and 90% of the selected devices [...] in each round", with E = 5, after FedProx
    (Li et al. 2020), section 5.2.
    """

    slow_share: float = Field(
        0.5, ge=0.0, le=1.0, description="share of the clients that make fewer epochs"
    )
    epochs_drawn: Literal["once", "each-round"] = Field(
        "each-round",
        description="whether a client's number of epochs is drawn once or in each round",
    )

    def epochs(
        self, seed: int, server_round: int, partition_id: int, clients: int, local_epochs: int
    ) -> int:
        """Return the draw of a slow client, and all epochs for another one."""
        labels = self.labels(server_round)
        order = randomness.generator(seed, *labels, "slow").permutation(clients)
        if partition_id not in order[: round(self.slow_share * clients)]:
            return local_epochs
        generator = randomness.generator(seed, *labels, "epochs", partition_id)
        return int(generator.integers(1, local_epochs, endpoint=True))

    def expected_epochs(self, local_epochs: int) -> float:
        """Return the mean over slow and other clients."""
        return self.slow_share * (1 + local_epochs) / 2 + (1 - self.slow_share) * local_epochs
