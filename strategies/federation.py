"""The nodes of a run: waited for, asked who they are once, and addressed by partition id."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from logging import WARNING
from typing import Any, TypeVar

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from bfl import errors, printing
from bfl.configuration.keys import Keys
from bfl.data.datasets import Reading, portable_dataset
from bfl.deployment.client_list import binding_problem, bound_clients, client_names, name_node
from bfl.engine.flower import is_simulation, log
from bfl.federation import wire
from bfl.federation.client_metrics import neutralize
from bfl.federation.node_description import NodeDescription, code_digest
from strategies.flower_clients import Outstanding, UsableReplies, exchange_with_retries

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


@dataclass(frozen=True)
class Federation:
    """The nodes of a run, by the partition they play.

    Attributes:
        nodes: Node id by partition id, for partition ids 0 to K − 1.
        own_examples: Size of the nodes' own data by partition id; 0 where a node takes its part of
            the run's data set.
        noise_anew: Whether some node draws noise that no seed repeats.
        descriptions: What nodes have said of themselves, by partition id; of nodes that are asked
            nothing, nothing.
    """

    nodes: Mapping[int, int]
    own_examples: Mapping[int, int]
    noise_anew: bool = True
    descriptions: Mapping[int, NodeDescription] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of clients K."""
        return len(self.nodes)

    @property
    def simulated(self) -> bool:
        """True if an engine simulates all nodes: they share the server's files and seed."""
        return not self.noise_anew

    @cached_property
    def names(self) -> list[str]:
        """The clients' names by partition id; empty ones where no list binds nodes to keys."""
        return client_names(self.nodes[client] for client in range(self.size))

    def name_of(self, partition_id: int) -> str:
        """Return a client's name, for people; without one, its partition id."""
        return self.names[partition_id] or f"client {partition_id}"

    def reads_run_paths(self, partition_id: int) -> bool:
        """Return whether a partition's node looks for the run's data where the server has them."""
        if self.simulated or not self.descriptions:
            return self.simulated
        return self.descriptions[partition_id].reads_run_paths

    def ask(
        self,
        grid: Grid,
        message_type: str,
        contents: Mapping[int, RecordDict],
        read: Callable[[Message], T],
        keys: Keys,
        name: str,
    ) -> dict[int, T]:
        """Ask clients something beside a round; return their answers, by partition id.

        Args:
            contents: What each is sent, by partition id.
            read: Returns what an answer says, or raises what is wrong with it.
            name: When, or for what, they are asked, in messages.

        Raises:
            RunError: Some have not answered, also when asked again.
        """
        answers: dict[int, T] = {}
        problems = dict.fromkeys(contents, "no reply")
        usable, clients = UsableReplies(len(contents)), {self.nodes[i]: i for i in contents}
        for reply in exchange_with_retries(
            grid,
            [Message(content, self.nodes[i], message_type) for i, content in contents.items()],
            silence=keys.client_timeout,
            retries=keys.round_retries,
            usable=usable,
        ):
            client = clients[reply.metadata.src_node_id]
            try:
                if reply.has_error():
                    raise errors.RunError(reply.error.reason)
                answers[client] = read(reply)
                usable.found += 1
                del problems[client]
            except errors.BflError as error:
                problems[client] = neutralize(str(error))
        if problems:
            lines = (f"\n{self.name_of(client)}: {text}" for client, text in problems.items())
            raise errors.RunError(f"{name}:{''.join(lines)}")
        return dict(sorted(answers.items()))


NAMED_AFTER = 5.0
"""Seconds after which it is said which nodes are waited for."""


def discover(
    grid: Grid, clients: int, timeout: float, poll: float = 0.2, **question: Any
) -> Federation:
    """Wait until all nodes have registered and said who they are, and return the federation.

    Flower samples among the nodes registered so far: without waiting, a first round may see 94 of
    100. Until the time is over, nodes may be late, answer with an error, or play the partition of
    another one, which may be one that Flower does not yet know to be gone. Of real nodes it is said
    meanwhile which are missing, and once what is wrong with one.

    Args:
        clients: The configured number of clients; 0: as many as the nodes' ``num-partitions``.
        timeout: Seconds to wait for nodes and for their answers.
        poll: Seconds between looks for nodes.
        question: What else they are asked, see ``NodeDescriptions``.

    Raises:
        RunError: Nodes are missing when the time is over, or the engine has died.
        ConfigurationError: Two nodes still play one partition then; or, at once, a node is unfit.
    """
    began = time.monotonic()
    deadline, missing_before, problems_told = began + timeout, "", set[str]()
    descriptions = NodeDescriptions(grid, **question)
    while True:
        described = descriptions.of_nodes_online(min(deadline, time.monotonic() + poll))
        expected = _agree_on_number(clients, described)
        partitions: dict[int, list[int]] = {}
        for node, description in described.items():
            partitions.setdefault(description.partition_id, []).append(node)
        if len(partitions) == len(described) == expected:
            if missing_before:
                printing.doing("all clients are there")
            nodes = {partition_id: partitions[partition_id][0] for partition_id in range(expected)}
            by_partition = {p: described[node] for p, node in nodes.items()}
            return Federation(
                nodes=nodes,
                own_examples={p: each.own_examples for p, each in by_partition.items()},
                # Real nodes cannot pass for simulated ones.
                noise_anew=any(each.noise_anew for each in by_partition.values())
                or not is_simulation(grid),
                descriptions=by_partition,
            )
        # By the list of clients also before any node has said how many there are.
        named = {client.partition_id: client.name for client in bound_clients().values()}
        number = max([expected, *(1 + partition for partition in named)])
        absent = (named.get(p, f"partition {p}") for p in range(number) if p not in partitions)
        missing, problems = _join(absent, 50), descriptions.problems()
        if time.monotonic() > deadline:
            for partition, twins in sorted(partitions.items()):
                if len(twins) > 1:
                    raise errors.ConfigurationError(
                        f"{_join(map(name_node, twins))} all have partition-id {partition} in "
                        "their node configuration; each needs its own, from 0"
                    )
            silent = [
                f"{name_node(n)} does not report its partition" for n in descriptions.silent()
            ]
            raise errors.RunError(
                f"{len(described)} of {number} nodes are there after {timeout:g} s (node-timeout), "
                f"without {missing}; start what is missing, or set clients"
                + "".join(f"\n{line}" for line in silent + problems)
            )
        if not is_simulation(grid):
            for problem in set(problems) - problems_told:
                printing.tell(problem)
            problems_told.update(problems)
            late = time.monotonic() > began + NAMED_AFTER
            if late and missing and missing != missing_before:
                printing.doing(f"waits for {missing}")
                missing_before = missing
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
            if not clients:
                text = "begins with %d nodes; ClientOptions(clients=…) waits for more"
                log(WARNING, text, len(online))
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


AGAIN_AFTER_FAILURE = 5.0
"""Seconds after which a node is asked again that has answered with an error."""

AGAIN_AFTER_SILENCE = 60.0
"""Seconds after which a node is asked again that may have lost the question."""


class NodeDescriptions:
    """Asks nodes who they are, and remembers what they say.

    Args:
        private: Whether nodes shall not say how many examples they have.
        num_classes: The number of classes that nodes' own labels are held to; None: they are not.
        class_names: The names of these classes, to which nodes' own are held where both have some.
        dataset: The run's data set and where it looks for archives, which nodes without data of
            their own look for; None: they do not.
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
        self._known: dict[int, NodeDescription] = {}
        self._failures: dict[int, str] = {}
        self._ask_again: dict[int, float] = {}  # by the monotonic clock, of nodes that were asked
        self._grid, self._outstanding = grid, Outstanding(grid)
        question = {
            "plugins": plugins,
            wire.PRIVATE: private,
            wire.NUM_CLASSES: num_classes,
            wire.CLASS_NAMES: [*class_names],
        }
        self._question: dict[str, Any] = {key: value for key, value in question.items() if value}
        self._paths: dict[str, str] = {}
        if dataset:
            self._question |= {wire.DATASET: portable_dataset(dataset[0]), **dataset[2].values()}
            self._paths = dict(zip((wire.DATASET, wire.DATA_DIR), dataset[:2], strict=True))
        self._messages_with_paths: set[str] = set()

    def of_nodes_online(self, until: float) -> dict[int, NodeDescription]:
        """Ask the nodes that are not known yet; return what those online have said of themselves.

        Args:
            until: The time by the monotonic clock until which answers are waited for.

        Raises:
            ConfigurationError: An answer is not as docs/wire-format.md says.
        """
        online, now = set(self._grid.get_node_ids()), time.monotonic()
        due = [
            node
            for node in sorted(online - self._known.keys())
            if self._ask_again.get(node, now) <= now
        ]
        self._ask_again |= dict.fromkeys(due, now + AGAIN_AFTER_SILENCE)
        self._send(self._question, due)
        while self._outstanding.messages:
            replies = self._outstanding.replies()
            self._take(replies)
            if not replies:
                if time.monotonic() >= until:
                    break
                self._outstanding.pause()
        return {node: self._known[node] for node in sorted(online & self._known.keys())}

    def silent(self) -> list[int]:
        """Return the nodes that have been asked and have not answered yet."""
        queried = {message.metadata.dst_node_id for message in self._outstanding.messages.values()}
        return sorted(queried)

    def problems(self) -> list[str]:
        """Return a line for each node that has answered, and not with a partition of its own."""
        return [
            f"{name_node(node)} cannot report its partition: {reason}"
            for node, reason in sorted(self._failures.items())
        ]

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
            except errors.ConfigurationError as error:
                raise errors.ConfigurationError(f"{name_node(node)}: {error}") from error
            except errors.RunError as error:
                self._failures[node] = neutralize(str(error))
                self._ask_again[node] = time.monotonic() + AGAIN_AFTER_FAILURE
                continue
            knows_paths = reply.metadata.reply_to_message_id in self._messages_with_paths
            if description.reads_run_paths and self._paths and not knows_paths:
                # Whether it has the data is known when it knows where they are.
                sent = self._send({**self._question, **self._paths}, [node])
                self._messages_with_paths |= {message.metadata.message_id for message in sent}
                continue
            self._known[node] = description
            self._failures.pop(node, None)


def _agree_on_number(clients: int, described: Mapping[int, NodeDescription]) -> int:
    # Clients of another framework, whose code is not this package's, name none.
    if other := [n for n, d in described.items() if d.code not in (code_digest(), "")]:
        raise errors.ConfigurationError(OTHER_CODE.format(_join(map(name_node, other))))
    numbers: dict[int, list[int]] = {}
    for node, description in described.items():
        if description.unfit:
            where = f"{name_node(node)} (partition {description.partition_id})"
            raise errors.ConfigurationError(f"{where}: {description.unfit}")
        numbers.setdefault(description.num_partitions, []).append(node)
    if len(numbers) > 1:
        answers = "; ".join(
            f"{n} says {_join(map(name_node, numbers[n]))}" for n in sorted(numbers)
        )
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
                f"the partition-id of {name_node(node)} is {description.partition_id}; "
                f"expected 0 to {number - 1}"
            )
    return number


def _join(names: Iterable[str], most: int = 10) -> str:
    """Return the first names; there may be any number of them."""
    first = list(islice(names, most + 1))
    return f"{', '.join(first[:most])}{' and others' if len(first) > most else ''}"
