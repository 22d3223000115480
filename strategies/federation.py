"""The nodes of a run: waited for, asked who they are once, and addressed by partition id."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from bfl import errors
from bfl.configuration.keys import Keys
from bfl.data.datasets import Reading, portable_dataset
from bfl.deployment.client_list import binding_problem, called
from bfl.engine.flower import is_simulation
from bfl.federation import wire
from bfl.federation.client_metrics import neutralized
from bfl.federation.node_description import NodeDescription, code_digest
from strategies.messaging import Outstanding, UsableReplies, exchange_with_retries

T = TypeVar("T")

OTHER_CODE = (
    "the server and some clients run different code ({}): the engine imports bfl, clients or "
    "strategies from another folder. Start it from a folder that holds none of them, or install "
    "one version everywhere"
)

OTHER_NUMBER = (
    "clients is {}, but there are {} SuperNodes; allowed: the same number, or clients=0 to take "
    "the SuperNodes'"
)


def discover(
    grid: Grid, clients: int, timeout: float, poll: float = 0.2, **question: Any
) -> Federation:
    """Wait until all nodes have registered and said who they are, and return the federation.

    Flower samples among the nodes registered so far: without waiting, a first round may see 94 of
    100. Until the time is over, nodes may be late, answer with an error, or play the partition of
    another one, which may be one that Flower does not yet know to be gone.

    Args:
        clients: The configured number of clients; 0: as many as the nodes' ``num-partitions``.
        timeout: Seconds to wait for nodes and for their answers.
        poll: Seconds between looks for nodes.
        question: What else they are asked, see ``NodeDescriptions``.

    Raises:
        RunError: Nodes are missing when the time is over, or the engine has died.
        ConfigurationError: Two nodes still play one partition then; or, at once, a node is unfit.
    """
    deadline = time.monotonic() + timeout
    descriptions = NodeDescriptions(grid, **question)
    while True:
        online = descriptions.ask()
        descriptions.listen(min(deadline, time.monotonic() + poll))
        for node, reason in descriptions.malformed.items():
            raise errors.ConfigurationError(f"{called(node)}: {reason}")
        described = {n: d for n, d in sorted(descriptions.known.items()) if n in online}
        expected = _expected_number(clients, described)
        partitions: dict[int, list[int]] = {}
        for node, description in described.items():
            partitions.setdefault(description.partition_id, []).append(node)
        if len(partitions) == len(described) == expected:
            by_partition = {p: described[partitions[p][0]] for p in sorted(partitions)}
            # Real nodes cannot pass for simulated ones.
            anew = any(d.noise_anew for d in by_partition.values()) or not is_simulation(grid)
            return Federation(
                nodes={p: partitions[p][0] for p in by_partition},
                own_examples={p: d.own_examples for p, d in by_partition.items()},
                stateful=frozenset(p for p, d in by_partition.items() if d.keeps_state),
                noise_anew=anew,
                descriptions=descriptions,
            )
        if time.monotonic() > deadline:
            for partition, nodes in sorted(partitions.items()):
                if len(nodes) > 1:
                    raise errors.ConfigurationError(
                        f"{_listed(map(called, nodes))} all have partition-id {partition} in "
                        "their node configuration; each needs its own, from 0"
                    )
            missing = (str(p) for p in range(expected) if p not in partitions)
            raise errors.RunError(
                f"{len(described)} of {expected} nodes are there after {timeout:g} s "
                f"(node-timeout), without partitions {_listed(missing, 100)}"
                f"{descriptions.problems()}\nstart the missing SuperNodes, or set clients"
            )
        if not descriptions.silent():  # else listening has taken its time
            time.sleep(poll)


def number_nodes(grid: Grid, clients: int, timeout: float, poll: float = 0.2) -> Federation:
    """Wait for the nodes, and number them by the order of their ids; they are asked nothing.

    Without a number of ``clients``, they are as many as at the look before.
    """
    deadline = time.monotonic() + timeout
    before: set[int] = set()
    while True:
        online = set(grid.get_node_ids())
        if clients and len(online) > clients:
            raise errors.ConfigurationError(OTHER_NUMBER.format(clients, len(online)))
        if len(online) == clients or (not clients and online and online == before):
            return Federation(
                nodes=dict(enumerate(sorted(online))),
                own_examples=dict.fromkeys(range(len(online)), 0),
                noise_anew=not is_simulation(grid),
            )
        if time.monotonic() > deadline:
            wanted = f" of {clients}" if clients else ", and now others,"
            raise errors.RunError(
                f"{len(online)}{wanted} nodes are there after {timeout:g} s (node-timeout); start "
                "the missing SuperNodes, or set clients"
            )
        before = online
        time.sleep(poll)


@dataclass(frozen=True)
class Federation:
    """The nodes of a run, by the partition they play.

    Attributes:
        nodes: Node id by partition id, for partition ids 0 to K − 1.
        own_examples: Size of the nodes' own data by partition id; 0 where a node takes its part of
            the run's data set.
        stateful: The partitions whose nodes keep a state that outlives Flower's run.
        noise_anew: Whether some node draws noise that no seed repeats.
        descriptions: What nodes have said of themselves so far.
    """

    nodes: Mapping[int, int]
    own_examples: Mapping[int, int]
    stateful: frozenset[int] = frozenset()
    noise_anew: bool = True
    descriptions: NodeDescriptions | None = field(default=None, compare=False, repr=False)

    @property
    def size(self) -> int:
        """The number of clients K."""
        return len(self.nodes)

    @property
    def simulated(self) -> bool:
        """True if an engine simulates all nodes: they share the server's files and seed."""
        return not self.noise_anew

    def partition_of(self, node_id: int) -> int:
        """Return the partition id of a node."""
        return self._partitions[node_id]

    @cached_property
    def _partitions(self) -> Mapping[int, int]:
        return {node: partition_id for partition_id, node in self.nodes.items()}

    def reads_run_paths(self, partition_id: int) -> bool:
        """Return whether a partition's node looks for the run's data where the server has them."""
        if self.simulated or not self.descriptions:
            return self.simulated
        description = self.descriptions.known.get(self.nodes[partition_id])
        return description is not None and description.reads_run_paths

    def ask(
        self,
        grid: Grid,
        message_type: str,
        contents: Mapping[int, RecordDict],
        read: Callable[[Message], T],
        keys: Keys,
        needed: int,
    ) -> tuple[dict[int, T], dict[int, str]]:
        """Ask clients something beside a round; return answers, and problems where there is none.

        Args:
            contents: What each is sent, by partition id.
            read: Returns what an answer says, or raises what is wrong with it.
            needed: How many answers are enough to ask nobody again.
        """
        answers: dict[int, T] = {}
        problems = dict.fromkeys(contents, "no reply")
        usable = UsableReplies(needed)
        for reply in exchange_with_retries(
            grid,
            [Message(content, self.nodes[i], message_type) for i, content in contents.items()],
            silence=keys.client_timeout,
            retries=keys.round_retries,
            usable=usable,
        ):
            client = self.partition_of(reply.metadata.src_node_id)
            try:
                if reply.has_error():
                    raise errors.RunError(reply.error.reason)
                answers[client] = read(reply)
                usable.found += 1
                del problems[client]
            except errors.BflError as error:
                problems[client] = neutralized(str(error))
        return dict(sorted(answers.items())), problems


AGAIN_AFTER_FAILURE = 5.0
"""Seconds after which a node is asked again that has answered with an error."""

AGAIN_AFTER_SILENCE = 60.0
"""Seconds after which a node is asked again that says nothing: its process may have been ended with
the question in hand. The answer to an earlier question is still taken."""


class NodeDescriptions:
    """Asks nodes who they are, and remembers what they say.

    Args:
        private: Whether nodes shall not say how many examples they have.
        num_classes: The number of classes that nodes' own labels are held to; None: they are not.
        class_names: The names of these classes, to which nodes' own are held where both have some.
        dataset: The run's data set and where it looks for archives, which nodes without data of
            their own look for; None: they do not.

    Attributes:
        failures: What nodes have answered that could not say who they are.
        malformed: The answers that are not as docs/wire-format.md says.
    """

    def __init__(
        self,
        grid: Grid,
        plugins: str = "",
        *,
        private: bool = False,
        num_classes: int | None = None,
        class_names: Sequence[str] = (),
        dataset: tuple[str, str, Reading] | None = None,
    ) -> None:
        self.known: dict[int, NodeDescription] = {}
        self.failures: dict[int, str] = {}
        self.malformed: dict[int, str] = {}
        self._grid, self._outstanding = grid, Outstanding(grid)
        self._question: dict[str, Any] = {
            **({"plugins": plugins} if plugins else {}),
            **({wire.PRIVATE: True} if private else {}),
            **({wire.NUM_CLASSES: num_classes} if num_classes is not None else {}),
            **({wire.CLASS_NAMES: [*class_names]} if class_names else {}),
            **(
                {wire.DATASET: portable_dataset(dataset[0]), **dataset[2].values()}
                if dataset
                else {}
            ),
        }
        self._paths = (
            dict(zip((wire.DATASET, wire.DATA_DIR), dataset[:2], strict=True)) if dataset else {}
        )
        self._messages_with_paths: set[str] = set()
        self._ask_again: dict[int, float] = {}
        self._notes: set[str] = set()

    def ask(self) -> set[int]:
        """Ask the nodes online that are not known yet; return the ids of all that are online."""
        online = set(self._grid.get_node_ids())
        now = time.monotonic()
        unknown = sorted(online - self.known.keys())
        due = [node for node in unknown if self._ask_again.get(node, now) <= now]
        self._ask_again |= dict.fromkeys(due, now + AGAIN_AFTER_SILENCE)
        self._send(self._question, due)
        return online

    def listen(self, until: float) -> None:
        """Take answers until all nodes have given theirs, or a time by the monotonic clock."""
        while self._outstanding.messages:
            replies = self._outstanding.replies()
            self._take(replies)
            if not replies:
                if time.monotonic() >= until:
                    return
                self._outstanding.pause()

    def silent(self) -> list[int]:
        """Return the nodes that have been asked and have not answered yet."""
        queried = {message.metadata.dst_node_id for message in self._outstanding.messages.values()}
        return sorted(queried - self.known.keys())

    def problems(self) -> str:
        """Return a line for each node that has not said who it is."""
        lines = [f"\n{called(node)} does not report its partition" for node in self.silent()]
        for node, reason in sorted(self.failures.items()):
            lines.append(f"\n{called(node)} cannot report its partition: {reason}")
        return "".join(lines)

    def take_note(self, text: str) -> bool:
        """Note what somebody warns of; return whether it is the first time."""
        new = text not in self._notes
        self._notes.add(text)
        return new

    def _send(self, question: Mapping[str, Any], nodes: Iterable[int]) -> list[Message]:
        content = RecordDict({"config": ConfigRecord(dict(question))})
        messages = [Message(content, node, MessageType.QUERY) for node in nodes]
        self._take(self._outstanding.send(messages))
        return messages

    def _take(self, replies: Iterable[Message]) -> None:
        for reply in replies:
            node = reply.metadata.src_node_id
            try:
                if reply.has_error():
                    raise errors.RunError(reply.error.reason)
                description = NodeDescription.from_content(reply.content)
                if problem := binding_problem(node, description.partition_id):
                    raise errors.RunError(problem)
                knows_paths = reply.metadata.reply_to_message_id in self._messages_with_paths
                if description.reads_run_paths and self._paths and not knows_paths:
                    # Whether it has the data is known when it knows where they are.
                    sent = self._send({**self._question, **self._paths}, [node])
                    self._messages_with_paths |= {message.metadata.message_id for message in sent}
                    continue
                self.known[node] = description
                self.failures.pop(node, None)
            except (errors.ConfigurationError, errors.RunError) as error:
                reason = neutralized(str(error))
                if node not in self.known:
                    self.failures[node] = reason
                    self._ask_again[node] = time.monotonic() + AGAIN_AFTER_FAILURE
                if isinstance(error, errors.ConfigurationError):
                    self.malformed[node] = reason


def _expected_number(clients: int, described: Mapping[int, NodeDescription]) -> int:
    # Clients of another framework, whose code is not this package's, name none.
    if other := [n for n, d in described.items() if d.code not in (code_digest(), "")]:
        raise errors.ConfigurationError(OTHER_CODE.format(_listed(map(called, other))))
    numbers: dict[int, list[int]] = {}
    for node, description in described.items():
        if description.unfit:
            where = f"{called(node)} (partition {description.partition_id})"
            raise errors.ConfigurationError(f"{where}: {description.unfit}")
        numbers.setdefault(description.num_partitions, []).append(node)
    if len(numbers) > 1:
        answers = "; ".join(f"{n} says {_listed(map(called, numbers[n]))}" for n in sorted(numbers))
        raise errors.ConfigurationError(
            f"the nodes disagree on num-partitions: {answers}. It is the number of clients and the "
            "same for all: after a change, each client needs its new identity.toml or node "
            "configuration, and a new start"
        )
    number = next(iter(numbers), clients or 1)
    if clients and number != clients:
        raise errors.ConfigurationError(OTHER_NUMBER.format(clients, number))
    for node, description in described.items():
        if not 0 <= description.partition_id < number:
            raise errors.ConfigurationError(
                f"the partition-id of {called(node)} is {description.partition_id}; "
                f"expected 0 to {number - 1}"
            )
    return number


def _listed(names: Iterable[str], most: int = 10) -> str:
    """Return the first names; there may be any number of them."""
    first = list(islice(names, most + 1))
    return f"{', '.join(first[:most])}{' and others' if len(first) > most else ''}"
