"""The node that a client is played on: its configuration, read in one place.

``--node-config`` of a SuperNode, or Flower in a simulation, sets it; docs/running.md has its keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pydantic
from flwr.app import Context
from pydantic import Field

from bfl.configuration.keys import Keys
from bfl.data.datasets import Reading, dataset_reads_path
from bfl.deployment.client_list import ListedIdentity
from bfl.deployment.settings import NodeTable, PathText
from bfl.engine.processes import in_simulation
from bfl.errors import ConfigurationError, public
from bfl.federation.secure_aggregation.keys import Identity, Unsigned
from bfl.registry import STRICT


class Node(NodeTable):
    """Configuration of a node.

    Attributes:
        state_dir: Where its client keeps a state, see ``clients.state``; empty: nowhere.
        signing_key: The file with the key that it signs with, or empty.
        simulated: Whether an engine simulates it.
    """

    # Flower's own entries, and those of others, are none of its business.
    model_config = STRICT | pydantic.ConfigDict(extra="ignore")

    partition_id: int = Field(ge=0)
    num_partitions: int = Field(ge=1)
    state_dir: PathText = ""
    signing_key: PathText = ""
    simulated: bool = False

    @classmethod
    def of(cls, context: Context) -> Node:
        """Return the node of a context, or raise ConfigurationError for a wrong setting."""
        given: Mapping[str, Any] = context.node_config
        return cls.parse({**given, "simulated": in_simulation(given)}, "node configuration")

    @pydantic.model_validator(mode="after")
    def _plays_one_of_them(self) -> Self:
        if self.partition_id >= self.num_partitions:
            refusal = ConfigurationError(
                f"partition-id is {self.partition_id}; allowed: 0 to {self.num_partitions - 1}, as "
                f"num-partitions is {self.num_partitions}"
            )
            # Both are what the server asks of it.
            raise public(refusal)
        return self

    @property
    def allows_run_paths(self) -> bool:
        """True if it reads paths that the run names."""
        return self.allow_run_paths or self.simulated

    @property
    def plugins_folder(self) -> str | None:
        """Folder of the files of plugins that it takes; None: a simulated node takes all."""
        return None if self.simulated else self.plugins_dir

    @property
    def reads_run_paths(self) -> bool:
        """True if it is a SuperNode that looks for the run's data where the server has them."""
        return self.allows_run_paths and not self.simulated and not self.dataset

    @property
    def identity(self) -> Identity:
        """Identity of its client for others: without a list of clients, nobody in particular."""
        if bool(self.signing_key) != bool(self.clients_list):
            raise ConfigurationError(
                "node configuration: signing-key and clients-list go together, and one is missing"
            )
        if not self.clients_list:
            return Unsigned()
        return ListedIdentity.read(
            Path(self.signing_key), Path(self.clients_list), self.partition_id
        )

    def shared_dataset(self, keys: Keys) -> tuple[str, str, Reading]:
        """Return the run's data set, where its archives are on this node, and how it is read."""
        return *self.place_of(keys.dataset, keys.data_dir), keys.reading

    def place_of(self, dataset: str, data_dir: str) -> tuple[str, str]:
        """Return the data set of a run by its keys ``dataset`` and ``data-dir``, and where it is.

        Raises:
            ConfigurationError: The run names a path, and this node reads none for a server.
        """
        if self.allows_run_paths:
            return dataset, data_dir if self.data_dir is None else self.data_dir
        if dataset_reads_path(dataset):
            refusal = ConfigurationError(
                f"dataset is '{dataset}', and this node reads no path that a server names; "
                "allowed: data of its own (dataset in its own configuration), a named data set, "
                "or allow-run-paths=true in the node's configuration"
            )
            raise public(refusal)
        return dataset, self.data_dir or ""
