"""The node that a client is played on: what its configuration says, read in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pydantic
from flwr.app import Context

from bfl.engine.resources import in_simulation
from bfl.errors import ConfigurationError
from bfl.learning.models import create_architecture
from bfl.plugins import PluginPolicy


@dataclass(frozen=True)
class Node:
    """What a node's configuration says.

    Attributes:
        partition_id: Which client of the partition it plays.
        num_partitions: How many clients there are.
        dataset: Data of its own, or empty.
        data_dir: Where archives lie on its machine; None: where the run's ``data-dir`` says.
        plugins: Where the files of a run's plugins are, and which plugins it takes: a simulated
            node all, a SuperNode what its own configuration and installation say.
        state_dir: Where its client keeps a state, or empty.
        personal_model: The architecture of its client's personal model, or empty: as the run says.
        simulated: Whether an engine simulates it.
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
    simulated: bool
    private: bool
    allows_attack: bool

    @classmethod
    def of(cls, context: Context) -> Node:
        """Return the node of a context.

        Raises:
            ConfigurationError: A setting is missing or of the wrong type.
        """
        given: Mapping[str, Any] = context.node_config
        simulated = in_simulation(given)
        if "personal-model" in given:
            _check_model(given["personal-model"])
        return cls(
            partition_id=_number(given, "partition-id"),
            num_partitions=_number(given, "num-partitions"),
            dataset=str(given.get("dataset", "")),
            data_dir=str(given["data-dir"]) if "data-dir" in given else None,
            plugins=PluginPolicy(str(given.get("plugins-dir", "")) or None, not simulated),
            state_dir=str(given.get("state-dir", "")),
            personal_model=str(given.get("personal-model", "")),
            simulated=simulated,
            private=_flag(given, "private"),
            allows_attack=_flag(given, "allow-attack") or simulated,
        )


def _check_model(word: object) -> None:
    try:
        create_architecture(str(word))
    except (ConfigurationError, pydantic.ValidationError) as error:
        raise ConfigurationError(
            f"node configuration: personal-model is {word!r}: {error}"
        ) from error


def _flag(node_config: Mapping[str, Any], key: str) -> bool:
    given = node_config.get(key, False)
    if not isinstance(given, bool):
        raise ConfigurationError(f"node configuration: {key} is {given!r}; allowed: true or false")
    return given


def _number(node_config: Mapping[str, Any], key: str) -> int:
    if key not in node_config:
        raise ConfigurationError(
            f"node configuration: {key} is missing; start the SuperNode with "
            "--node-config 'partition-id=0 num-partitions=2'"
        )
    return int(node_config[key])
