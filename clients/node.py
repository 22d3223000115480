"""The node that a client is played on: what its configuration says, read in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pydantic
from flwr.app import Context

from bfl.engine.resources import in_simulation
from bfl.errors import ConfigurationError
from bfl.federation.exchanges import exchanges
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
        exchange: The one exchange that it takes part in, or empty: any that the run has.
        simulated: Whether an engine simulates it.
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
    simulated: bool
    allows_attack: bool

    @classmethod
    def of(cls, context: Context) -> Node:
        """Return the node of a context.

        Raises:
            ConfigurationError: A setting is missing or of the wrong type.
        """
        given: Mapping[str, Any] = context.node_config
        simulated = in_simulation(given)
        allow = given.get("allow-attack", False)
        if not isinstance(allow, bool):
            raise ConfigurationError(
                f"node configuration: allow-attack is {allow!r}; allowed: true or false"
            )
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
            exchange=exchanges.get(str(given["exchange"])).name if "exchange" in given else "",
            simulated=simulated,
            allows_attack=simulated or allow,
        )


def _check_model(word: object) -> None:
    try:
        create_architecture(str(word))
    except (ConfigurationError, pydantic.ValidationError) as error:
        raise ConfigurationError(
            f"node configuration: personal-model is {word!r}: {error}"
        ) from error


def _number(node_config: Mapping[str, Any], key: str) -> int:
    if key not in node_config:
        raise ConfigurationError(
            f"node configuration: {key} is missing; start the SuperNode with "
            "--node-config 'partition-id=0 num-partitions=2'"
        )
    return int(node_config[key])
