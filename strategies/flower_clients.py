"""The clients of a federation over Flower: sent a round's messages, and heard in their order.

``FlowerClients`` makes the messages and reads the replies. Below it: messages are sent, replies
handed on as they come, and asked for again when they are lost.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flwr.app import DEFAULT_TTL, ConfigRecord, Error, Message, RecordDict
from flwr.serverapp import Grid

from bfl import errors
from bfl.aggregation.plausibility import judge_updates
from bfl.deployment.client_list import client_names
from bfl.engine.flower import NO_REPLY, is_simulation
from bfl.engine.flower.replies import Replies, UnusableReplyError
from bfl.federation import client_metrics, wire
from bfl.printing import detail
from strategies import updates as received
from strategies.round import TrainingRequest
from strategies.server_state import Round

if TYPE_CHECKING:
    from strategies.federation import Federation
    from strategies.method import ClientOptions, RunSupport

STOPPED_ANSWERING, FAILED, REFUSED = "stopped answering", "failed", "update refused"
"""Reasons for which a round is made without a client, in its record."""


class FlowerClients:
    """The clients of a federation over Flower.

    Args:
        federation: The nodes. One that is gone fails until it is there again, under its own id.
        silence: Seconds without hearing from any client after which a round goes on without those
            that have not replied.
        warn: Shows what goes wrong with a client.

    Attributes:
        num_examples: Numbers of the clients' examples by partition id: those that the server has
            assigned, or that a node has declared before the first round.
        more: Values of a ServerApp's own, for its own clients, sent from now on.
        texts_shown: What has been warned of in full.
        usable: What has become of the last round's replies so far.
        left_out: Why that round is made without a client, by partition id.
        farthest: Whose values were farthest from the others' in that round, and how far.
        played_by: The client that each node plays.
        configuration_texts: The run's configuration as each client is sent it.
    """

    def __init__(
        self,
        grid: Grid,
        federation: Federation,
        options: ClientOptions,
        run: RunSupport,
        *,
        silence: float,
        warn: Callable[[str], None],
    ) -> None:
        self.grid, self.federation, self.size = grid, federation, federation.size
        self.options, self.silence = options, silence
        self.num_examples = _num_examples(federation, options)
        # With it come all metrics, which no server needs before it has clients.
        from bfl.experiments.results.clients import metrics_of_clients

        _, self._metrics = metrics_of_clients()
        self.more = ConfigRecord()
        self.usable, self.farthest = UsableReplies(1), ""
        self.left_out: dict[int, str] = {}
        self.texts_shown: set[str] = set()
        self._warn, self._manifest, self._test_partition = warn, run.manifest, run.test_partition
        self.played_by = {node: client for client, node in federation.nodes.items()}
        self._messages: list[Message] = []
        configuration = options.configuration
        texts = {
            paths: json.dumps(configuration.for_clients(paths=paths) if configuration else {})
            for paths in (False, True)
        }
        self.configuration_texts = [
            texts[federation.reads_run_paths(client)] for client in range(self.size)
        ]
        self._alike: dict[str, Any] = {  # in the tasks of all clients and rounds
            "num_classes": options.num_classes,
            "run_folder": run.folder if federation.simulated else "",
            "run_key": run.key,
        }
        if configuration and configuration.inference.counts_all_examples:
            if unknown := [str(i) for i in range(self.size) if i not in self.num_examples]:
                raise errors.ConfigurationError(
                    "likelihood-examples is 'federation', and the number of examples of partitions "
                    f"{', '.join(unknown)} is not known before the first round; allowed: nodes "
                    "that declare their examples, examples that the server assigns, or "
                    "likelihood-examples='client'"
                )
            self._alike["likelihood_examples"] = sum(self.num_examples.values())

    def min_updates(self, selected: int) -> int:
        """Return how many of so many clients have to send a usable update, at least 1."""
        least = self.options.min_clients
        share = least * selected if least < 1 else min(least, selected)
        return max(1, math.ceil(share - 1e-9))

    def messages(self, request: TrainingRequest) -> list[Message]:
        """Return the messages of a round."""
        self.usable, self.left_out = UsableReplies(self.min_updates(len(request.partition_ids))), {}
        self._messages = [
            self.message(client, content, request.message_type, request.server_round)
            for client, content in self.contents(request).items()
        ]
        return self._messages

    def contents(self, request: TrainingRequest) -> dict[int, RecordDict]:
        """Return what each client is sent, by partition id."""
        # One record for all: the clients of a round are sent the same.
        state, partition, tests = request.state, self.options.partition, self._test_partition
        arrays = wire.posterior_to_arrays(state.posterior, request.vectors)
        extras = wire.vectors_to_arrays(request.broadcast)
        contents = {}
        for client in request.partition_ids:
            task = wire.TrainTask(
                server_round=request.server_round,
                partition_id=client,
                configuration=self.configuration_texts[client],
                examples=None if partition is None else partition[client],
                test_examples=None if tests is None else tests[client],
                pooled_round=int(state.last_pooled[client]),
                damping=float(state.damping[client]),
                **self._alike,
            )
            contents[client] = wire.train_content(arrays, task, self.more, extras)
        return contents

    def message(
        self, partition_id: int, content: RecordDict, message_type: str, server_round: int
    ) -> Message:
        """Return a message to the node that plays a client."""
        node = self.federation.nodes[partition_id]
        return Message(content, node, message_type, group_id=str(server_round))

    def replies(self, name: str, messages: Sequence[Message]) -> Iterator[Message]:
        """Send a round's messages and yield the replies as they come; ask again whose are lost."""
        return exchange_with_retries(
            self.grid,
            messages,
            silence=self.silence,
            retries=self.options.round_retries,
            usable=self.usable,
            report=lambda node, reason: self.warn(name, self.played_by[node], f"failed: {reason}"),
        )

    def updates(
        self, request: TrainingRequest, replies: Iterable[Message]
    ) -> Iterator[received.ClientUpdate]:
        """Yield the usable updates in the replies to a round's messages, by partition id.

        Replies may come in any order, while others are still training; each is counted in
        ``usable`` as it comes.

        Raises:
            RunError: Fewer clients than ``min-clients`` have sent a usable update, or some that
                were yielded turn out to be implausible. A LostStateError: it will stay so.
        """
        usable, selected, self.farthest = self.usable, request.partition_ids, ""

        def refuse(client: int, problem: str) -> None:
            usable.found -= 1
            self._refuse(request, client, problem)

        updates = in_order(self._read_replies(request, replies), selected)
        if request.of_sums:
            yield from updates
        elif farthest := (
            yield from judge_updates(updates, request.state.posterior, request.broadcast, refuse)
        ):
            client, what = farthest
            self.farthest = f"{self.federation.name_of(client)} sent {what}"
        if not usable.enough:
            stays = len(selected) - usable.lost < usable.needed  # whoever else comes back
            raise (errors.LostStateError if stays else errors.RunError)(
                f"{request.name}: {usable.found} of {len(selected)} clients have sent a usable "
                f"posterior, and min-clients asks for {usable.needed}"
            )

    def _read_replies(
        self, request: TrainingRequest, replies: Iterable[Message]
    ) -> Iterator[tuple[int, received.ClientUpdate | None]]:
        """Yield the updates in replies as they come, by partition id; None where none is usable."""
        receivers = {each.metadata.message_id: each.metadata.dst_node_id for each in self._messages}
        nodes = {message.metadata.dst_node_id for message in self._messages}
        for reply in replies:
            # Flower answers by itself for a node that is gone, and names its own node; and who
            # answers in another's place has no second update. What is asked again has other ids.
            sender = reply.metadata.src_node_id
            node = receivers.get(reply.metadata.reply_to_message_id, sender)
            if node in nodes:
                client = self.played_by[node]
                problem = "" if node == sender else "another node has answered"
                update = self._read_reply(request, reply, client, problem)
                del reply  # nobody holds it, or an update, while the next is waited for
                yield client, update
                del update

    def _read_reply(
        self, request: TrainingRequest, reply: Message, client: int, problem: str
    ) -> received.ClientUpdate | None:
        if reply.has_error():
            self.usable.lost += reply.error.code == wire.RUN_CANNOT_GO_ON
            problem = str(reply.error.reason) or "for no reason given"
        if problem:
            silent = NO_REPLY_FOR in problem
            self.left_out[client] = STOPPED_ANSWERING if silent else FAILED
            self.warn(request.name, client, f"failed: {problem}")
            return None
        try:
            update = received.read_update(
                reply,
                client,
                request.expected,
                manifest=None if request.of_sums else self._manifest,
                num_examples=self.num_examples.get(client),
                most_examples=self.options.max_examples,
                declared=request.declared,
                known_metrics=self._metrics,
            )
            if unfit := request.find_problem(update):
                raise received.RefusedUpdateError(unfit)
        except received.RefusedUpdateError as error:
            self._refuse(request, client, str(error))
            return None
        self.usable.found += 1
        if update.impossible:
            numbers = ", ".join(f"{name} {value:g}" for name, value in update.impossible.items())
            text = f"says what cannot be, left out of means: {numbers}"
            self.warn(request.name, client, text)
        return update

    def _refuse(self, request: TrainingRequest, client: int, problem: str) -> None:
        self.left_out[client] = REFUSED
        self.warn(request.name, client, f"update refused: {problem}")

    def add_counts(self, request: TrainingRequest, pooled: Round) -> Round:
        """Return a pooled round with what has become of the clients that were selected for it."""
        present = {entry["client"] for entry in pooled.clients}
        left_out: list[dict[str, Any]] = []
        for client in request.partition_ids:
            if client not in present:
                reason = self.left_out.get(client, STOPPED_ANSWERING)
                name = self.federation.name_of(client)
                left_out.append({"client": client, "name": name, "reason": reason})
        refused = sum(entry["reason"] == REFUSED for entry in left_out)
        counts = {"clients": len(present), "failures": len(left_out) - refused, "refused": refused}
        metrics = {**counts, **pooled.metrics}
        return replace(pooled, metrics=metrics, left_out=left_out, farthest=self.farthest)

    def warn(self, name: str, client: int, text: str) -> None:
        """Warn of what is wrong with a client in a round of that name: in full the first time."""
        shown = text = client_metrics.neutralize(text)
        if text in self.texts_shown:
            last = text.strip().splitlines()[-1]
            shown = f"{last.removeprefix(client_metrics.CONTINUED)} (as before)"
        self.texts_shown.add(text)
        self._warn(f"{name}, {self.federation.name_of(client)}: {shown}")


def _num_examples(federation: Federation, options: ClientOptions) -> dict[int, int]:
    parts = [None] * federation.size if options.partition is None else options.partition
    most, share = options.max_examples, 0.0
    if options.configuration:
        share = options.configuration.held_back_share
    if len(parts) < federation.size:
        raise errors.ConfigurationError(
            f"the partition has {len(parts)} parts and the federation {federation.size} clients"
        )
    known = {}
    for partition_id, own in federation.own_examples.items():
        part = parts[partition_id]
        if part is None and own > most:
            raise errors.ConfigurationError(
                f"the node of partition {partition_id} declares {own} examples of its own; "
                f"allowed: at most max-examples, {most}"
            )
        if part is not None and not len(part):
            raise errors.ConfigurationError(
                f"part {partition_id} of the partition is empty: its client has nothing to "
                "train on; allowed: at least one example for each client"
            )
        # A node that says nothing is believed in each round, up to the most.
        if examples := own if part is None else len(part):
            known[partition_id] = examples
            if share:
                from bfl.closing.base import held_back_count

                known[partition_id] -= max(0, held_back_count(examples, share))
    return known


def in_order(
    updates: Iterable[tuple[int, received.ClientUpdate | None]], partition_ids: Sequence[int]
) -> Iterator[received.ClientUpdate]:
    """Yield clients' updates in the order of partition ids, each as early as it can be.

    An update is handed on as soon as all clients before it have been heard of. So what is held is
    what has come out of order, and nobody needs to hold all updates of a round.

    Args:
        updates: Updates by partition id, as they come; None where one is of no use.
        partition_ids: The clients that were asked, sorted.
    """
    early: dict[int, received.ClientUpdate | None] = {}
    following = list(reversed(partition_ids))
    for partition_id, update in updates:
        early[partition_id] = update
        del update  # nobody holds it while the next is waited for
        while following and following[-1] in early:
            if (due := early.pop(following.pop())) is not None:
                yield due
            del due
    for partition_id in sorted(early):  # some have not been heard of at all
        if (last := early.pop(partition_id)) is not None:
            yield last
        del last


NO_REPLY_FOR = "no reply for"  # begins the reason of who has stopped answering


@dataclass
class UsableReplies:
    """Number of usable replies, and the number that is enough to go on without the rest.

    Whoever takes replies counts each before it takes the next.

    Attributes:
        lost: How many clients have lost what they kept, and will not reply to this round.
    """

    needed: int
    found: int = 0
    lost: int = 0

    @property
    def enough(self) -> bool:
        """True if nobody needs to be asked again."""
        return self.found >= self.needed


def exchange_with_retries(
    grid: Grid,
    messages: Sequence[Message],
    *,
    silence: float,
    retries: int,
    usable: UsableReplies,
    report: Callable[[int, str], None] = lambda node, reason: None,
) -> Iterator[Message]:
    """Send messages and yield one reply for each; if too few are usable, ask again who has failed.

    A client's work is a function of the round and its partition, so one that is asked again gives
    what it would have given, and those that have replied are not asked again: usable or not.

    Replies are yielded as they come, and an error as soon as its node will not be asked again.

    Args:
        silence: See ``exchange``.
        retries: How often those that failed are asked again.
        report: Takes the node and the reason of each failure after which the node is asked again.
    """
    unanswered = {message.metadata.dst_node_id: message for message in messages}
    for attempt in range(retries + 1):
        failed: dict[int, Message] = {}
        for reply in exchange(grid, list(unanswered.values()), silence):
            if reply.has_error():
                failed[reply.metadata.src_node_id] = reply
            else:
                del unanswered[reply.metadata.src_node_id]
                yield reply
            while failed and (attempt == retries or usable.enough):
                node = next(iter(failed))
                del unanswered[node]
                yield failed.pop(node)
        for node, message in unanswered.items():
            reason = f"{NO_REPLY_FOR} {silence:g} s (client-timeout)"
            failed.setdefault(node, _failure(message, reason))
        if attempt == retries or usable.enough:
            yield from failed.values()
            return
        for node, reply in failed.items():
            report(node, str(reply.error.reason))
            sent = unanswered[node].metadata  # Flower gives each message one id and one life
            unanswered[node] = Message(
                unanswered[node].content, node, sent.message_type, group_id=sent.group_id
            )


def _failure(message: Message, reason: str, code: int = NO_REPLY) -> Message:
    return Message(Error(code=code, reason=client_metrics.neutralize(reason)), reply_to=message)


def exchange(grid: Grid, messages: Sequence[Message], silence: float) -> Iterator[Message]:
    """Send messages and yield the replies as they come, each from the node that was asked.

    Messages that Flower does not take are answered at once, by an error.

    Args:
        silence: Seconds without any reply after which the rest is given up. The total may be
            longer, as a process that plays many clients replies for one after the other.

    Raises:
        RunError: The engine has died, or a simulation's client cannot go on.
    """
    outstanding = Outstanding(grid)
    yield from outstanding.send(messages, silence)
    while outstanding.messages:
        replies = outstanding.replies()
        any_came = bool(replies)
        while replies:
            yield replies.pop(0)  # and keep none of them while waiting for the next
        if not any_came and outstanding.silence > silence:
            return
        if outstanding.messages:
            text = ""
            if replied := len(messages) - len(outstanding.messages):
                nodes = (each.metadata.dst_node_id for each in outstanding.messages.values())
                missing = [name for name in client_names(nodes) if name]
                text = f"{replied} of {len(messages)} clients have replied"
                text += f", and not {', '.join(missing[:10])}" if missing else ""
            detail(text)
            outstanding.pause()


POLLING_SHARE = 0.1
"""The greatest share of the time that is spent on looking for replies, which grows with them."""

LONGEST_PAUSE = 0.2  # seconds between looks

TIMES, ALLOWANCE = 8, 2**24
"""A reply has at most so many times the bytes of the arrays in the largest message sent, and so
many bytes more. What a method sends back at most is three numbers of 8 bytes for a mean of 4."""


class Outstanding:
    """Messages that have been sent to nodes and not been answered yet.

    A reply is known by the message that it answers. Flower answers by itself for a node that is
    gone, and as the source of such a reply it names its own node.
    """

    def __init__(self, grid: Grid) -> None:
        self.messages: dict[str, Message] = {}
        self._grid = grid
        self._replies = Replies(grid)
        self._last_reply = time.monotonic()
        self._look_seconds = 0.0
        self._most_bytes = ALLOWANCE
        self._patience = math.inf

    def send(self, messages: Sequence[Message], silence: float = 0.0) -> list[Message]:
        """Send messages; return errors for those that Flower has not taken.

        They are waited for ``silence`` seconds without any reply, see ``exchange``; 0: for good.
        """
        if not messages:
            return []
        for message in messages:
            # Flower answers by itself for a message whose life is over, and drops what comes then.
            # Each but the last reply may begin the silence anew. What a client that hangs has not
            # looked at does not wait for it for good.
            message.metadata.ttl = DEFAULT_TTL + silence * len(messages)
        self._last_reply = time.monotonic()
        self._patience = silence or math.inf
        largest = max(
            sum(record.count_bytes() for record in message.content.array_records.values())
            for message in messages
        )
        self._most_bytes = max(self._most_bytes, ALLOWANCE + TIMES * largest)
        taken = set(filter(None, self._grid.push_messages(messages)))
        refused = []
        for message in messages:
            # Flower sets the id while it sends, and leaves out, or empty, those not taken.
            message_id = message.metadata.message_id
            if message_id in taken:
                self.messages[message_id] = message
            else:
                refused.append(_failure(message, "Flower has not taken the message: node is gone"))
        return refused

    def replies(self) -> list[Message]:
        """Return the replies that have come; the source of each is the node that was asked.

        One that is no message, larger than any can be, or announced and not uploaded in time, is an
        error, and the others do not wait for it.
        """
        began, incoming = time.monotonic(), self._replies.coming.keys()
        before = set(incoming)
        looked = self._replies.look(self.messages.keys(), self._most_bytes, self._patience)
        self._look_seconds = time.monotonic() - began
        if looked or incoming - before:
            self._last_reply = time.monotonic()
        replies = []
        for message_id, reply in looked:
            # A client that is asked twice may answer twice; only the first answer finds a message.
            message = self.messages.pop(message_id, None)
            if message is None:
                continue
            node = message.metadata.dst_node_id
            if isinstance(reply, UnusableReplyError):
                replies.append(_failure(message, f"node {node}: {reply}"))
            elif reply.has_error():
                # A node of a deployment has no such power: it fails, and the others go on.
                if reply.error.code == wire.RUN_CANNOT_GO_ON and is_simulation(self._grid):
                    raise errors.LostStateError(client_metrics.neutralize(str(reply.error.reason)))
                replies.append(_failure(message, str(reply.error.reason), reply.error.code))
            elif reply.metadata.src_node_id != node:
                other = reply.metadata.src_node_id
                replies.append(_failure(message, f"node {other} has answered in its place"))
            else:
                replies.append(reply)
        return replies

    @property
    def silence(self) -> float:
        """Seconds since a message has been sent, or a reply has come or begun to come."""
        return time.monotonic() - self._last_reply

    def pause(self) -> None:
        """Wait until it is worth looking for replies again."""
        if self._replies.interval:
            pause = min(self._look_seconds / POLLING_SHARE, LONGEST_PAUSE)
            time.sleep(max(self._replies.interval, pause))
