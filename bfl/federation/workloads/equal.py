"""The same number of epochs for all clients."""

from __future__ import annotations

from bfl.federation.workloads.base import Workload, workloads


@workloads.register("equal", aliases=("none",))
class EqualWorkload(Workload):
    """Every client makes ``local-epochs`` epochs in every round.

    Source: McMahan et al. (2017), Algorithm 1.
    """

    @property
    def varies(self) -> bool:
        """False."""
        return False

    def epochs(
        self, seed: int, server_round: int, partition_id: int, clients: int, local_epochs: int
    ) -> int:
        """Return the run's number of local epochs."""
        return local_epochs

    def expected_epochs(self, local_epochs: int) -> float:
        """Return the run's number of local epochs."""
        return local_epochs
