"""What a workload is: the local epochs of a client as a function of seed, round and partition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from pydantic import Field

from bfl.registry import Component, Registry


class Workload(Component, ABC):
    """Says how many local epochs a client makes: systems heterogeneity, if not all make as many.

    A workload has no memory and does not know the method, so all methods get the same draws, in
    whatever order clients train and after any interruption. Clients compute it themselves, from the
    configuration that comes with a task.

    Attributes:
        reads_local_epochs: Whether ``local-epochs`` has a part in it.
    """

    reads_local_epochs: ClassVar[bool] = True

    @property
    def varies(self) -> bool:
        """Whether clients may make another number of epochs than ``local-epochs``."""
        return True

    @abstractmethod
    def epochs(
        self, seed: int, server_round: int, partition_id: int, clients: int, local_epochs: int
    ) -> int:
        """Return how many epochs a client makes in a round, at least 1.

        Args:
            seed: The run's seed.
            server_round: The round, from 1.
            partition_id: The client, from 0.
            clients: The number of clients K.
            local_epochs: The run's number of local epochs E.
        """

    @abstractmethod
    def expected_epochs(self, local_epochs: int) -> float:
        """Return the mean of a client's epochs in a round, over what is drawn."""


class DrawnWorkload(Workload):
    """A workload that draws: for the whole run, or anew in each round."""

    epochs_drawn: Literal["once", "each-round"] = Field(
        "once", description="whether a client's number of epochs is drawn once or in each round"
    )

    def labels(self, server_round: int) -> tuple[str | int, ...]:
        """Return what keys the draws of a round, beside the seed."""
        return ("workload", server_round) if self.epochs_drawn == "each-round" else ("workload",)


workloads: Registry[Workload] = Registry("workload", "bfl.federation.workloads")
