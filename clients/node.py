"""The node that a client is played on: what its configuration says, read in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
from flwr.app import Context

from bfl.configuration.keys import Keys
from bfl.data.datasets import Reading, dataset_reads_path
from bfl.deployment.signatures import ListedIdentity
from bfl.engine.resources import in_simulation
from bfl.errors import ConfigurationError, public
from bfl.federation.exchanges import exchanges
from bfl.federation.secure_aggregation.keys import Identity, Unsigned
from bfl.files import given_path
from bfl.learning.models import create_architecture
from bfl.plugins import PluginPolicy


@dataclass(frozen=True)
class Node:
    """Configuration of a node.

    Attributes:
        partition_id: Which client of the partition it plays.
        num_partitions: How many clients there are.
        dataset: Data of its own, or empty.
        data_dir: Where archives lie on its machine; None: it does not say.
        plugins: Where the files of a run's plugins are, and which plugins it takes: a simulated
            node all, a SuperNode what its own configuration and installation say.
        state_dir: Where its client keeps a state, or empty.
        personal_model: The architecture of its client's personal model, or empty: as the run says.
        exchange: The one exchange that it takes part in, or empty: any that the run has.
        greatest_weight: The greatest weight with which its client sends anything to be added up,
            in (0, 1]; 1: any.
        signing_key: The file with the key that it signs with, or empty.
        clients_list: The file with its own list of clients' keys, or empty.
        simulated: Whether an engine simulates it.
        allows_run_paths: Whether it reads paths that the run names: if it is simulated, or its
            configuration has ``allow-run-paths=true``.
        private: Whether it sends nothing without noise of its own, and no number of examples.
        allows_attack: Whether it may play a hostile client: if it is simulated, or its
            configuration has ``allow-attack=true``.
    """

    partition_id: int
    num_partitions: int
    dataset: str
    data_dir: str | None
    plugins: PluginPolicy
    state_dir: str
    personal_model: str
    exchange: str
    greatest_weight: float
    signing_key: str
    clients_list: str
    simulated: bool
    allows_run_paths: bool
    private: bool
    allows_attack: bool

    @property
    def reads_run_paths(self) -> bool:
        """True if it is a SuperNode that looks for the run's data where the server has them."""
        return self.allows_run_paths and not self.simulated and not self.dataset

    @property
    def identity(self) -> Identity:
        """Identity of its client for others: without a list of clients, nobody in particular.

        Raises:
            ConfigurationError: A file is missing or wrong.
        """
        if bool(self.signing_key) != bool(self.clients_list):
            raise ConfigurationError(
                "node configuration: signing-key and clients-list go together, and one is missing"
            )
        if not self.clients_list:
            return Unsigned()
        return ListedIdentity.read(
            Path(self.signing_key), Path(self.clients_list), self.partition_id
        )

    @classmethod
    def of(cls, context: Context) -> Node:
        """Return the node of a context.

        Raises:
            ConfigurationError: A setting is missing, of the wrong type or out of range.
        """
        given: Mapping[str, Any] = context.node_config
        simulated = in_simulation(given)
        partition_id, num_partitions = _partition(given)
        if "personal-model" in given:
            _check_model(given["personal-model"])
        return cls(
            partition_id=partition_id,
            num_partitions=num_partitions,
            dataset=str(given.get("dataset", "")),
            data_dir=_path(given, "data-dir") if "data-dir" in given else None,
            plugins=PluginPolicy(_path(given, "plugins-dir") or None, not simulated),
            state_dir=_path(given, "state-dir"),
            personal_model=str(given.get("personal-model", "")),
            exchange=exchanges.get(str(given["exchange"])).name if "exchange" in given else "",
            greatest_weight=_share(given, "greatest-weight"),
            signing_key=_path(given, "signing-key"),
            clients_list=_path(given, "clients-list"),
            simulated=simulated,
            allows_run_paths=_flag(given, "allow-run-paths") or simulated,
            private=_flag(given, "private"),
            allows_attack=_flag(given, "allow-attack") or simulated,
        )

    def shared_dataset(self, keys: Keys) -> tuple[str, str, Reading]:
        """Return the run's data set, where its archives are on this node, and how it is read.

        Raises:
            ConfigurationError: The run names a path, and this node reads none for a server; or it
                names no data set.
        """
        return *self.place_of(keys.dataset, keys.data_dir), keys.reading

    def place_of(self, dataset: str, data_dir: str) -> tuple[str, str]:
        """Return the data set of a run by its keys ``dataset`` and ``data-dir``, and where it is.

        Raises:
            ConfigurationError: As for ``shared_dataset``.
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


def _flag(given: Mapping[str, Any], key: str) -> bool:
    flag = given.get(key, False)
    if not isinstance(flag, bool):
        raise ConfigurationError(f"node configuration: {key} is {flag!r}; allowed: true or false")
    return flag


def _path(given: Mapping[str, Any], key: str) -> str:
    text = str(given.get(key, ""))
    return str(given_path(text, f"node configuration: {key}")) if text else ""


def _share(given: Mapping[str, Any], key: str) -> float:
    share = given.get(key, 1.0)
    if type(share) not in (int, float) or not 0.0 < share <= 1.0:
        raise ConfigurationError(
            f"node configuration: {key} is {share!r}; allowed: a number above 0, up to 1"
        )
    return float(share)


def _check_model(word: object) -> None:
    try:
        create_architecture(str(word))
    except (ConfigurationError, pydantic.ValidationError) as error:
        raise ConfigurationError(
            f"node configuration: personal-model is {word!r}: {error}"
        ) from error


def _partition(given: Mapping[str, Any]) -> tuple[int, int]:
    """Return which client of how many a node plays."""
    for key, least in (("partition-id", 0), ("num-partitions", 1)):
        if key not in given:
            raise ConfigurationError(
                f"node configuration: {key} is missing; start the SuperNode with "
                "--node-config 'partition-id=0 num-partitions=2'"
            )
        # Flower hands on whatever TOML has: true would play 1 otherwise, and 1.5 as well.
        if type(given[key]) is not int or given[key] < least:
            raise ConfigurationError(
                f"node configuration: {key} is {given[key]!r}; allowed: a whole number from {least}"
            )
    partition_id, num_partitions = given["partition-id"], given["num-partitions"]
    if partition_id >= num_partitions:
        refusal = ConfigurationError(
            f"node configuration: partition-id is {partition_id}; allowed: 0 to "
            f"{num_partitions - 1}, as num-partitions is {num_partitions}"
        )
        # Both are what the server asks of it.
        raise public(refusal)
    return partition_id, num_partitions
