"""The nodes of a run: waited for, asked who they are once, and addressed by partition id."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from bfl.code import code_digest
from bfl.errors import ConfigurationError, RunError
from bfl.wire import NodeDescription
from strategies.exchange import exchange


@dataclass(frozen=True)
class Federation:
    """The nodes of a run, by the partition they play.

    Attributes:
        nodes: Node id by partition id, for partition ids 0 to K − 1.
        own_examples: Size of the nodes' own data by partition id; 0 where a node takes its part of
            the run's data set.
    """

    nodes: Mapping[int, int]
    own_examples: Mapping[int, int]

    @property
    def size(self) -> int:
        """The number of clients K."""
        return len(self.nodes)

    def partition_of(self, node_id: int) -> int:
        """Return the partition id that a node plays."""
        return self._partitions[node_id]

    @cached_property
    def _partitions(self) -> Mapping[int, int]:
        return {node: partition_id for partition_id, node in self.nodes.items()}


def discover(grid: Grid, clients: int, timeout: float, poll: float = 0.2) -> Federation:
    """Wait until all nodes have registered, ask each who it is, and return the federation.

    Flower samples among the nodes registered so far: without waiting, a first round may see 94 of
    100. How many there have to be is ``clients``, or if that is 0 what the nodes say themselves.

    Args:
        grid: Flower's grid.
        clients: The configured number of clients; 0: as many as the nodes' ``num-partitions``.
        timeout: Seconds to wait for nodes and for their answers.
        poll: Seconds between looks.

    Raises:
        RunError: Nodes are missing when the time is over, one of them answers with an error, or
            the engine has died.
        ConfigurationError: Two nodes play one partition, the numbers differ, or a node runs other
            code than the server.
    """
    deadline = time.monotonic() + timeout
    described: dict[int, NodeDescription] = {}
    expected = clients or 1
    while len(described) < expected:
        waiting = [node for node in grid.get_node_ids() if node not in described]
        if waiting:
            described.update(_ask(grid, waiting, max(1.0, deadline - time.monotonic())))
            expected = _expected(clients, described)
        elif time.monotonic() > deadline:
            raise RunError(
                f"{len(described)} of {expected} nodes are there after {timeout:g} s "
                "(node-timeout): start the missing SuperNodes, or set clients"
            )
        else:
            time.sleep(poll)
    return _checked(described)


def _ask(grid: Grid, nodes: Iterable[int], timeout: float) -> dict[int, NodeDescription]:
    question = RecordDict({"config": ConfigRecord({})})
    messages = [Message(question, node, MessageType.QUERY) for node in nodes]
    described = {}
    for reply in exchange(grid, messages, timeout):
        if reply.has_error():
            raise RunError(f"a node cannot say who it is: {reply.error.reason}")
        described[reply.metadata.src_node_id] = NodeDescription.from_content(reply.content)
    return described


def _expected(clients: int, described: Mapping[int, NodeDescription]) -> int:
    """Return how many nodes there have to be."""
    numbers = {description.num_partitions for description in described.values()}
    if len(numbers) > 1:
        raise ConfigurationError(
            f"the nodes disagree on num-partitions: {sorted(numbers)}; it is the number of clients "
            "and the same for all"
        )
    number = numbers.pop() if numbers else clients or 1
    if clients and number != clients:
        raise ConfigurationError(
            f"clients is {clients}, but there are {number} SuperNodes (num-partitions); "
            "allowed: the same number, or clients=0 to take the SuperNodes'"
        )
    return number


def _checked(described: Mapping[int, NodeDescription]) -> Federation:
    # Clients of another framework, whose code is not this package's, name none.
    codes = {d.code for d in described.values() if d.code} | {code_digest()}
    if len(codes) > 1:
        raise ConfigurationError(
            "the server and some clients run different code: the engine imports bfl, clients or "
            "strategies from another folder. Start it from a folder that holds none of them, or "
            "install one version everywhere"
        )
    nodes: dict[int, int] = {}
    for node, description in sorted(described.items()):
        if description.partition_id in nodes:
            raise ConfigurationError(
                f"two nodes have partition-id {description.partition_id} in their node "
                "configuration; each needs its own, from 0"
            )
        nodes[description.partition_id] = node
    if sorted(nodes) != list(range(len(nodes))):
        raise ConfigurationError(
            f"the nodes' partition ids are {sorted(nodes)}; expected 0 to {len(nodes) - 1}"
        )
    return Federation(
        nodes=dict(sorted(nodes.items())),
        own_examples={d.partition_id: d.own_examples for d in described.values()},
    )
