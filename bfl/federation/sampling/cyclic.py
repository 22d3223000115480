"""The clients one after the other, in the order of their partition ids."""

from __future__ import annotations

from pydantic import Field

from bfl.federation.sampling.base import Sampling, samplings


@samplings.register("cyclic", aliases=("sequential",))
class CyclicSampling(Sampling):
    """The next few clients in the order of their partition ids, and again from the first.

    With ``clients-in-turn`` = 1 a round is one client's: the sequential schedule of partitioned
    variational inference.

    Source: Bui et al. (2018), "Partitioned variational inference", section 2.2; Ashman et al.
    (2022), section 3.1.
    """

    clients_in_turn: int = Field(
        1, ge=1, description="how many clients take part in a round of cyclic sampling"
    )

    def sample(self, seed: int, server_round: int, clients: int) -> list[int]:
        """Return the round's partition ids, sorted."""
        count = min(clients, self.clients_in_turn)
        first = (server_round - 1) * count
        return sorted((first + turn) % clients for turn in range(count))
