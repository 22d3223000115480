"""Workloads: a client's local epochs, as a function of seed, round and partition."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bfl import randomness
from bfl.registry import Component, Registry


class Workload(Component, ABC):
    """The number of local epochs of a client, which it computes by itself, in a round."""

    active: ClassVar[bool] = True
    """True if clients may make another number of epochs than ``local-epochs``."""

    @abstractmethod
    def epochs(
        self, seed: int, server_round: int, partition_id: int, clients: int, local_epochs: int
    ) -> int:
        """Return how many epochs one of so many clients makes in a round, at least 1."""

    @abstractmethod
    def expected_epochs(self, local_epochs: int) -> float:
        """Return the mean of a client's epochs in a round, over what is drawn."""


EpochsDrawn = Annotated[
    Literal["once", "each-round"],
    Field(description="whether a client's number of epochs is drawn once or in each round"),
]


class DrawnWorkload(Workload):
    """A workload that draws: for the whole run, or anew in each round."""

    epochs_drawn: EpochsDrawn = "once"

    def _labels(self, server_round: int) -> tuple[str | int, ...]:
        """Return what keys the draws of a round, besides the seed."""
        return ("workload", server_round) if self.epochs_drawn == "each-round" else ("workload",)


workloads: Registry[Workload] = Registry("workload", "bfl.federation.workloads")


@workloads.register("equal", aliases=("none",))
class EqualWorkload(Workload):
    """Every client makes ``local-epochs`` epochs in every round.

    Source: McMahan et al. (2017), Algorithm 1.
    """

    active: ClassVar[bool] = False

    def epochs(
        self, seed: int, server_round: int, partition_id: int, clients: int, local_epochs: int
    ) -> int:
        """Return the run's number of local epochs."""
        return local_epochs

    def expected_epochs(self, local_epochs: int) -> float:
        """Return the run's number of local epochs."""
        return local_epochs


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
    epochs_drawn: EpochsDrawn = "each-round"

    def epochs(
        self, seed: int, server_round: int, partition_id: int, clients: int, local_epochs: int
    ) -> int:
        """Return the draw of a slow client, and all epochs for another one."""
        labels = self._labels(server_round)
        order = randomness.generator(seed, *labels, "slow").permutation(clients)
        if partition_id not in order[: round(self.slow_share * clients)]:
            return local_epochs
        generator = randomness.generator(seed, *labels, "epochs", partition_id)
        return int(generator.integers(1, local_epochs, endpoint=True))

    def expected_epochs(self, local_epochs: int) -> float:
        """Return the mean over slow and other clients."""
        return self.slow_share * (1 + local_epochs) / 2 + (1 - self.slow_share) * local_epochs


@workloads.register("uniform")
class UniformWorkload(DrawnWorkload):
    """Every client makes E_k ~ U{1..``most-epochs``} epochs, whatever E is.

    Source: FedBE (2021), section 5.3, "assigning each client a local training epoch E_i, sampled
    uniformly from (0, 20]", which is {1, …, 20}. Whether once or in each round it does not say;
    FedProx (Li et al. 2020), whom it follows, draws in each round.
    """

    most_epochs: int = Field(20, ge=1, description="most local epochs that are drawn")

    def epochs(
        self, seed: int, server_round: int, partition_id: int, clients: int, local_epochs: int
    ) -> int:
        """Return the client's draw."""
        generator = randomness.generator(seed, *self._labels(server_round), "epochs", partition_id)
        return int(generator.integers(1, self.most_epochs, endpoint=True))

    def expected_epochs(self, local_epochs: int) -> float:
        """Return the mean of the uniform distribution."""
        return (1 + self.most_epochs) / 2
