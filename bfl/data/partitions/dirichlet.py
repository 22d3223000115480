"""Every client has its own mixture of classes."""

from __future__ import annotations

import importlib.util
import warnings

import numpy as np
from pydantic import Field

from bfl.data.partitions.base import Indices, Partition, partitions
from bfl.errors import ConfigurationError

MAX_SEEDS = 50
"""How many seeds are tried; the library draws eleven times with each."""


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
    of Ozer et al. (2022); used by Fischer et al. (2024), section 3.1, with alpha 0.5 and 5.0.
    """

    alpha: float = Field(
        0.5,
        gt=0,
        allow_inf_nan=False,
        description="Concentration: small gives each client few classes, large gives all alike.",
    )
    min_partition_size: int = Field(
        1, ge=1, description="The least number of examples that a client gets."
    )
    self_balancing: bool = Field(
        False,
        description="Whether a client with more than its share of all examples gets none of the "
        "classes still to come.",
    )

    def check(self, num_examples: int, num_classes: int, clients: int) -> None:
        """Check that every client can have its least number of examples."""
        super().check(num_examples, num_classes, clients)
        if num_examples < clients * self.min_partition_size:
            raise ConfigurationError(
                f"partition '{self.name}': clients = {clients} and min-partition-size = "
                f"{self.min_partition_size} need {clients * self.min_partition_size} training "
                f"examples, and there are {num_examples}; allowed: min-partition-size from 1 to "
                f"{num_examples // clients}"
            )
        if importlib.util.find_spec("flwr_datasets") is None:
            raise ConfigurationError(
                f"partition '{self.name}' needs the library flwr-datasets, which is not installed "
                "(pip install 'flwr-datasets[vision]')"
            )

    def assign(
        self, labels: Indices, clients: int, generator: np.random.Generator
    ) -> list[Indices]:
        """Return the indices of the first draw in which every client gets enough examples."""
        # The library cuts each class in the order of the data, so it is given them shuffled.
        order = generator.permutation(labels.size)
        for seed in generator.integers(2**32, size=MAX_SEEDS):
            parts = self._draw(labels[order], clients, int(seed))
            if parts is not None:
                return [order[part] for part in parts]
        raise ConfigurationError(
            f"partition '{self.name}': with alpha = {self.alpha}, clients = {clients} and "
            f"min-partition-size = {self.min_partition_size}, no draw of {11 * MAX_SEEDS} gave "
            f"every client enough of the {labels.size} training examples; raise alpha, or lower "
            "clients or min-partition-size"
        )

    def _draw(self, labels: Indices, clients: int, seed: int) -> list[Indices] | None:
        """Return the library's parts for one seed, or None when a client gets too little."""
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
                    return None
                raise
        return [np.asarray(part.with_format("numpy")["idx"][:], np.int64) for part in parts]
