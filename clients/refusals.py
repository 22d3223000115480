"""Refusals of a node, whatever the server says."""

from __future__ import annotations

from bfl.configuration import Configuration
from bfl.errors import ConfigurationError, public
from bfl.federation.wire import TrainTask
from clients.node import Node


def refuse(task: TrainTask, node: Node, configuration: Configuration) -> None:
    """Refuse what this node does not do, whatever the server says.

    Raises:
        ConfigurationError: The task is another client's, or one of a hostile client, or the update
            would go another way than the node allows.
    """
    # Behind the last client comes the virtual one that pre-trains.
    if task.partition_id not in (node.partition_id, node.num_partitions):
        refusal = ConfigurationError(
            f"this node plays partition {node.partition_id} and is asked for partition "
            f"{task.partition_id}; has its configuration been changed during the run?"
        )
        raise public(refusal)
    if node.exchange and configuration.exchange.name != node.exchange:
        refusal = ConfigurationError(
            f"the run's exchange is '{configuration.exchange.name}', and this node's configuration "
            f"has exchange='{node.exchange}': it sends its updates in no other way"
        )
        raise public(refusal)
    # What an attack makes of an update is sent without noise.
    hostile = node.allows_attack and not node.private
    if configuration.attacks(task.partition_id) and not hostile:
        refusal = ConfigurationError(
            f"attack is '{configuration.attack.name}' for partition {task.partition_id}, and this "
            "node does not play hostile clients: only simulated nodes do, and SuperNodes whose "
            "node configuration has allow-attack=true and not private=true"
        )
        raise public(refusal)
    if node.private and not any(part.draws for part in configuration.outgoing):
        refusal = ConfigurationError(
            f"outgoing is '{configuration.words['outgoing']}' and this node has private=true in "
            'its configuration: it sends nothing without noise of its own; allowed: "clip+noise" '
            'with noise-at="clients"'
        )
        raise public(refusal)
