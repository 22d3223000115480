"""Every client has its own mixture of classes."""

from __future__ import annotations

import warnings

import numpy as np
from pydantic import Field

from bfl.data.partitions.base import Indices, Partition, partitions
from bfl.errors import ConfigurationError

MAX_SEEDS = 50
"""Number of seeds that are tried; the library draws eleven times with each."""


@partitions.register("dirichlet", aliases=("distribution-based-label-imbalance",))
class Dirichlet(Partition):
    """Each class is spread over the clients in proportions drawn from Dirichlet(alpha, ..., alpha).

    For each class the proportions of the K clients have the mean 1/K and the variance
    (K − 1) / (K² (K alpha + 1)). Draws that leave a client with fewer than ``min-partition-size``
    examples are repeated. The draw is that of flwr-datasets' ``DirichletPartitioner``, whose
    balancing is a setting: of the classes still to come, a client that has more than N/K examples
    gets none. That makes sizes alike: with 10 clients, 10 equal classes and alpha 0.5, the
    largest client has 14 % of the examples on average and not 17 %.

    Source: the distribution-based label imbalance of Li et al. (2022), "Federated learning on
    non-IID data silos", section 4.1, whose text does not balance and whose code does, as does that
    of Ozer et al. (2022); used by Fischer et al. (2024), section 3.1, with alpha 0.5 and 5.0. The
    code of FedBE (2021) balances, wants 10 examples and first gives every client 2 of each class
    (``guaranteed-examples``).
    """

    alpha: float = Field(0.5, gt=0, allow_inf_nan=False)
    """Concentration: small gives each client few classes, large gives all alike."""
    min_partition_size: int = Field(1, ge=1)
    """The least number of examples that a client gets."""
    self_balancing: bool = False
    """True if a client with more than its share of all examples gets none of the classes still to
    come."""
    guaranteed_examples: int = Field(0, ge=0)
    """Number of examples of each class that every client gets before the draw."""

    def check(self, num_examples: int, num_classes: int, clients: int) -> None:
        """Check that every client can have its least number of examples."""
        super().check(num_examples, num_classes, clients)
        guaranteed = num_classes * self.guaranteed_examples
        needed = clients * (self.min_partition_size + guaranteed)
        if num_examples < needed:
            most = num_examples // clients - guaranteed
            given = f" and guaranteed-examples = {self.guaranteed_examples}" if guaranteed else ""
            allowed = f"min-partition-size from 1 to {most}" if most >= 1 else "fewer clients"
            raise ConfigurationError(
                f"partition '{self.name}': clients = {clients} and min-partition-size = "
                f"{self.min_partition_size}{given} need {needed} training examples, and there are "
                f"{num_examples}; allowed: {allowed}"
            )

    def assign(
        self, labels: Indices, clients: int, generator: np.random.Generator
    ) -> list[Indices]:
        """Return the indices of the first draw in which every client gets enough examples."""
        # The library cuts each class in the order of the data, so it is given them shuffled.
        order = generator.permutation(labels.size)
        guaranteed = self._guarantee(labels[order], clients)
        left = np.delete(order, guaranteed)
        for seed in generator.integers(2**32, size=MAX_SEEDS):
            if parts := self._draw(labels[left], clients, int(seed)):
                own = order[guaranteed]
                return [np.append(left[part], few) for part, few in zip(parts, own, strict=True)]
        raise ConfigurationError(
            f"partition '{self.name}': with alpha = {self.alpha}, clients = {clients} and "
            f"min-partition-size = {self.min_partition_size}, no draw of {11 * MAX_SEEDS} gave "
            f"every client enough of the {labels.size} training examples; raise alpha, or lower "
            "clients or min-partition-size"
        )

    def _guarantee(self, labels: Indices, clients: int) -> Indices:
        """Return the positions (K, G·C) of what each client gets before the draw."""
        each = self.guaranteed_examples
        found = []
        for label in np.unique(labels):
            members = np.flatnonzero(labels == label)
            if members.size < clients * each:
                raise ConfigurationError(
                    f"partition '{self.name}' with clients = {clients} and guaranteed-examples = "
                    f"{each}: class {label} has only {members.size} examples; allowed: "
                    f"guaranteed-examples from 0 to {members.size // clients}"
                )
            found.append(members[: clients * each].reshape(clients, each))
        return np.concatenate(found, axis=1)

    def _draw(self, labels: Indices, clients: int, seed: int) -> list[Indices]:
        """Return the clients' positions; none where the library gives up."""
        from datasets import Dataset
        from flwr_datasets.partitioner import DirichletPartitioner

        partitioner = DirichletPartitioner(
            num_partitions=clients,
            partition_by="label",
            alpha=self.alpha,
            min_partition_size=self.min_partition_size,
            self_balancing=self.self_balancing,
            shuffle=False,
            seed=seed,
        )
        # Indices and labels alone: images in the table would cost hundreds of megabytes.
        partitioner.dataset = Dataset.from_dict({"idx": np.arange(labels.size), "label": labels})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns about each draw that it repeats
            try:
                parts = [partitioner.load_partition(client) for client in range(clients)]
            except ValueError as error:
                if "max number of attempts" in str(error):
                    return []
                raise
        return [np.asarray(part.with_format("numpy")["idx"][:], np.int64) for part in parts]
