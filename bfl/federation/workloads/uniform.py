"""Epochs drawn uniformly for every client."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, ValidationInfo, field_validator

from bfl import randomness
from bfl.federation.workloads.base import DrawnWorkload, workloads


@workloads.register("uniform")
class UniformWorkload(DrawnWorkload):
    """Every client makes E_k ~ U{``least-epochs``..``most-epochs``} epochs, whatever E is.

    Source: FedBE (2021), section 5.3, "assigning each client a local training epoch E_i, sampled
    uniformly from (0, 20]", which is {1, …, 20}. Whether once or in each round it does not say;
    FedProx (Li et al. 2020), whom it follows, draws in each round.
    """

    reads_local_epochs: ClassVar[bool] = False

    least_epochs: int = Field(1, ge=1, description="fewest local epochs that are drawn")
    most_epochs: int = Field(
        20, ge=1, validate_default=True, description="most local epochs that are drawn"
    )

    @field_validator("most_epochs")
    @classmethod
    def _at_least_the_fewest(cls, most: int, info: ValidationInfo) -> int:
        least = info.data.get("least_epochs", 1)
        if most < least:
            raise ValueError(f"at least least-epochs, {least}")
        return most

    def epochs(
        self, seed: int, server_round: int, partition_id: int, clients: int, local_epochs: int
    ) -> int:
        """Return the client's draw."""
        generator = randomness.generator(seed, *self.labels(server_round), "epochs", partition_id)
        return int(generator.integers(self.least_epochs, self.most_epochs, endpoint=True))

    def expected_epochs(self, local_epochs: int) -> float:
        """Return the mean of the uniform distribution."""
        return (self.least_epochs + self.most_epochs) / 2
