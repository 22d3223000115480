"""The node that a client is played on: its configuration, and what it refuses.

``--node-config`` of a SuperNode, or Flower in a simulation, sets it; docs/running.md has its keys.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import pydantic
from flwr.app import Context
from pydantic import Field

from bfl import errors, plugins
from bfl.configuration import Configuration, resolve
from bfl.configuration.keys import SERVER_ONLY_KEYS, Keys
from bfl.data.datasets import Reading, dataset_reads_path
from bfl.deployment.client_list import ListedIdentity
from bfl.deployment.settings import NodeTable, PathText
from bfl.engine import processes
from bfl.federation import wire
from bfl.federation.client_metrics import neutralize
from bfl.federation.secure_aggregation.keys import Identity, Unsigned
from bfl.registry import STRICT
from bfl.texts import from_json


class Node(NodeTable):
    """Configuration of a node.

    Attributes:
        state_dir: Where its client keeps a state, see ``clients.state``; empty: nowhere.
        signing_key: The file with the key that it signs with, or empty.
        simulated: Whether an engine simulates it.
        in_actor: Whether that is Ray's, one of whose actors plays it.
    """

    # Flower's own entries, and those of others, are none of its business.
    model_config = STRICT | pydantic.ConfigDict(extra="ignore")

    partition_id: int = Field(ge=0)
    num_partitions: int = Field(ge=1)
    state_dir: PathText = ""
    signing_key: PathText = ""
    simulated: bool = False
    in_actor: bool = False

    @classmethod
    def of(cls, context: Context) -> Node:
        """Return the node of a context, or raise ConfigurationError for a wrong setting."""
        given: Mapping[str, Any] = context.node_config
        played = {"simulated": processes.in_simulation(given), "in-actor": processes.in_ray_actor()}
        return cls.parse({**given, **played}, "node configuration")

    @pydantic.model_validator(mode="after")
    def _plays_one_of_them(self) -> Self:
        if self.partition_id >= self.num_partitions:
            refusal = errors.ConfigurationError(
                f"partition-id is {self.partition_id}; allowed: 0 to {self.num_partitions - 1}, as "
                f"num-partitions is {self.num_partitions}"
            )
            # Both are what the server asks of it.
            raise errors.public(refusal)
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
            raise errors.ConfigurationError(
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
            refusal = errors.ConfigurationError(
                f"dataset is '{dataset}', and this node reads no path that a server names; "
                "allowed: data of its own (dataset in its own configuration), a named data set, "
                "or allow-run-paths=true in the node's configuration"
            )
            raise errors.public(refusal)
        return dataset, self.data_dir or ""


def reason_for_server(error: Exception, simulated: bool) -> str:
    """Return what the server is sent of an exception; a simulated client has no secrets from it."""
    if not isinstance(error, errors.BflError) and simulated:
        return "".join(traceback.format_exception(error))
    if not isinstance(error, errors.BflError) or not (simulated or error.public):
        return f"{type(error).__qualname__} (its message is in the client's own log)"
    # Meant for people: its message says all.
    return (
        str(error)
        if isinstance(error, errors.LostStateError)
        else f"{type(error).__name__}: {error}"
    )


def tell_operator(text: str) -> None:
    """Print a line, with its client's name, for whoever runs this node.

    Words of the server's may be in it, so that they are escaped.
    """
    name = os.environ.get("BFL_CLIENT", "this node")
    print(f"{name}: {neutralize(text)}", file=sys.stderr, flush=True)


def log_error(error: Exception) -> None:
    """Print an error and its traceback, for whoever runs this node."""
    # A server's words may be in it: no line may pass for one of this client's own.
    trace = neutralize("".join(traceback.format_exception(error)))
    print(trace, file=sys.stderr, flush=True)
    tell_operator(f"failed: {str(error) or repr(error)}")


def refuse_task(task: wire.TrainTask, node: Node, configuration: Configuration) -> None:
    """Refuse what this node does not do, whatever the server says."""
    problem = ""
    # Behind the last client comes the virtual one that pre-trains.
    if task.partition_id not in (node.partition_id, node.num_partitions):
        problem = (
            f"this node has partition {node.partition_id} and is asked for partition "
            f"{task.partition_id}; has its configuration been changed during the run?"
        )
    elif node.exchange and configuration.exchange.name != node.exchange:
        problem = (
            f"the run's exchange is '{configuration.exchange.name}', and this node's configuration "
            f"has exchange='{node.exchange}': it sends its updates in no other way"
        )
    elif task.partition_id < configuration.attackers and not node.simulated:
        problem = (
            f"attack is '{configuration.attack.name}' for partition {task.partition_id}, and only "
            "simulated nodes play hostile clients"
        )
    elif node.private and not any(part.draws for part in configuration.outgoing):
        problem = (
            f"outgoing is '{configuration.words['outgoing']}' and this node has private=true in "
            'its configuration: it sends nothing without noise of its own; allowed: "clip+noise" '
            'with noise-at="clients"'
        )
    if problem:
        raise errors.public(errors.ConfigurationError(problem))


def cached_configuration(text: str, plugins_folder: str | None = None) -> Configuration:
    """Return the configuration that a JSON object of flat keys describes.

    The server has checked that its data are there; this machine may keep them elsewhere. What the
    server alone reads is not sent, and has its default here. ``load_plugins`` has what
    ``plugins_folder`` means.
    """
    # A file that was changed since is another plugin.
    loaded = plugins.load_plugins(plugins.named_plugins(from_json(text)), plugins_folder)
    return _resolve(text, plugins_folder, loaded)


@lru_cache(maxsize=16)
def _resolve(text: str, folder: str | None, loaded: tuple[plugins.Plugin, ...]) -> Configuration:
    ignored = SERVER_ONLY_KEYS - {"strategy"}  # a server may send what its preset has picked
    given = {key: value for key, value in from_json(text).items() if key not in ignored}
    return resolve(given, check_data=False, on_client=True, plugins_of_node=folder)


def start_tensorflow() -> None:
    """Size TensorFlow's threads to this process's share of the CPUs, before its first use."""
    from bfl.keras import configure

    configure(processes.cpus_of_this_process())
