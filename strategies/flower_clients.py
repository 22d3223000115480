"""The clients of a federation over Flower: sent a round's messages, and heard in their order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from bfl import errors
from bfl.federation import wire
from bfl.federation.client_metrics import CONTINUED, neutralized
from strategies.messaging import NO_REPLY_FOR, UsableReplies, exchange_with_retries, in_order
from strategies.round import TrainingRequest
from strategies.server_state import Round
from strategies.updates import ClientUpdate, RefusedUpdateError, judge_updates, read_update

if TYPE_CHECKING:
    from strategies.federation import Federation
    from strategies.run_support import ClientOptions, RunSupport

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
        farthest: Whose values were farthest from the others' in that round, and how far.
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
        self.grid, self.federation = grid, federation
        self.options, self.silence = options, silence
        self.num_examples = _num_examples(federation, options)
        # With it come all metrics, which no server needs before it has clients.
        from bfl.experiments.results.clients import metrics_of_clients

        _, self._metrics = metrics_of_clients()
        self.more = ConfigRecord()
        self.usable, self.farthest = UsableReplies(1), ""
        self._run, self._warn = run, warn
        self.texts_shown: set[str] = set()
        configuration = options.configuration
        self._texts = {
            paths: json.dumps(configuration.for_clients(paths=paths) if configuration else {})
            for paths in (False, True)
        }
        self._likelihood_examples = 0
        if configuration and configuration.inference.counts_all_examples:
            if unknown := [str(i) for i in range(self.size) if i not in self.num_examples]:
                raise errors.ConfigurationError(
                    "likelihood-examples is 'federation', and the number of examples of partitions "
                    f"{', '.join(unknown)} is not known before the first round; allowed: nodes "
                    "that declare their examples, examples that the server assigns, or "
                    "likelihood-examples='client'"
                )
            self._likelihood_examples = sum(self.num_examples.values())

    @property
    def size(self) -> int:
        """The number K of clients."""
        return self.federation.size

    def messages(self, request: TrainingRequest) -> list[Message]:
        """Return the messages of a round."""
        self.usable = UsableReplies(self.options.needed(len(request.partition_ids)))
        return [
            self.message(client, content, request.message_type, request.server_round)
            for client, content in self.contents(request).items()
        ]

    def replies(self, name: str, messages: Sequence[Message]) -> Iterator[Message]:
        """Send a round's messages and yield the replies as they come; ask again whose are lost."""
        return exchange_with_retries(
            self.grid,
            messages,
            silence=self.silence,
            retries=self.options.round_retries,
            usable=self.usable,
            report=lambda node, reason: self.warn(
                name, self.federation.partition_of(node), f"failed: {reason}"
            ),
        )

    def updates(
        self, request: TrainingRequest, replies: Iterable[Message]
    ) -> Iterator[ClientUpdate]:
        """Yield the usable updates in the replies to a round's messages, by partition id.

        Replies may come in any order, while others are still training; each is counted in
        ``usable`` as it comes.

        Raises:
            RunError: Fewer clients than ``min-clients`` have sent a usable update, or some that
                were yielded turn out to be implausible. A LostStateError: it will stay so.
        """
        usable, selected, self.farthest = self.usable, request.partition_ids, ""

        def refuse(partition_id: int, problem: str) -> None:
            usable.found -= 1
            self._refuse(request, partition_id, problem)

        updates = in_order(
            replies, selected, self.federation.partition_of, partial(self._read_update, request)
        )
        if request.of_sums:
            yield from updates
        elif farthest := (
            yield from judge_updates(updates, request.state.posterior, request.broadcast, refuse)
        ):
            client, what = farthest
            self.farthest = f"{self._name(client)} sent {what}"
        if not usable.enough:
            stays = len(selected) - usable.lost < usable.needed  # whoever else comes back
            raise (errors.LostStateError if stays else errors.RunError)(
                f"{request.name}: {usable.found} of {len(selected)} clients have sent a usable "
                f"posterior, and min-clients asks for {usable.needed}"
            )

    def _read_update(
        self, request: TrainingRequest, reply: Message, partition_id: int
    ) -> ClientUpdate | None:
        if reply.has_error():
            self.usable.lost += reply.error.code == wire.RUN_CANNOT_GO_ON
            silent = NO_REPLY_FOR in str(reply.error.reason)
            self.usable.left_out[partition_id] = STOPPED_ANSWERING if silent else FAILED
            self.warn(request.name, partition_id, f"failed: {reply.error.reason}")
            return None
        try:
            update = read_update(
                reply,
                partition_id,
                request.expected,
                manifest=None if request.of_sums else self._run.manifest,
                num_examples=self.num_examples.get(partition_id),
                most_examples=self.options.max_examples,
                declared=request.declared,
                known_metrics=self._metrics,
            )
            if problem := request.find_problem(update):
                raise RefusedUpdateError(problem)
        except RefusedUpdateError as error:
            self._refuse(request, partition_id, str(error))
            return None
        self.usable.found += 1
        if update.impossible:
            numbers = ", ".join(f"{name} {value:g}" for name, value in update.impossible.items())
            text = f"says what cannot be, left out of means: {numbers}"
            self.warn(request.name, partition_id, text)
        return update

    def _refuse(self, request: TrainingRequest, partition_id: int, problem: str) -> None:
        self.usable.left_out[partition_id] = REFUSED
        self.warn(request.name, partition_id, f"update refused: {problem}")

    def add_counts(self, request: TrainingRequest, pooled: Round) -> Round:
        """Return a pooled round with what has become of the clients that were selected for it."""
        present = {entry["client"] for entry in pooled.clients}
        left_out: list[dict[str, Any]] = []
        for client in request.partition_ids:
            if client not in present:
                reason = self.usable.left_out.get(client, STOPPED_ANSWERING)
                left_out.append({"client": client, "name": self._name(client), "reason": reason})
        refused = sum(entry["reason"] == REFUSED for entry in left_out)
        counts = {
            "clients": len(present),
            "failures": len(left_out) - refused,
            "refused": refused,
        }
        metrics = {**counts, **pooled.metrics}
        return replace(pooled, metrics=metrics, left_out=left_out, farthest=self.farthest)

    def _name(self, client: int) -> str:
        return self.federation.names[client] or f"client {client}"

    def warn(self, name: str, client: int, text: str) -> None:
        """Warn of what is wrong with a client in a round of that name: in full the first time."""
        shown = text = neutralized(text)
        if text in self.texts_shown:
            shown = f"{text.strip().splitlines()[-1].removeprefix(CONTINUED)} (as before)"
        self.texts_shown.add(text)
        if listed := self.federation.names[client]:
            name = f"{name}, {listed}"
        self._warn(f"{name}, client {client}: {shown}")

    def configuration_text(self, partition_id: int) -> str:
        """Return the run's configuration as a client is sent it."""
        return self._texts[self.federation.reads_run_paths(partition_id)]

    def message(
        self, partition_id: int, content: RecordDict, message_type: str, server_round: int
    ) -> Message:
        """Return a message to the node that plays a client."""
        node = self.federation.nodes[partition_id]
        return Message(content, node, message_type, group_id=str(server_round))

    def contents(self, request: TrainingRequest) -> dict[int, RecordDict]:
        """Return what each client is sent, by partition id."""
        # One record for all: the clients of a round are sent the same.
        state = request.state
        arrays = wire.posterior_to_arrays(state.posterior, request.vectors)
        extras = wire.vectors_to_arrays(request.broadcast)
        contents = {}
        for client in request.partition_ids:
            task = self._task(
                request.server_round,
                client,
                pooled_round=int(state.last_pooled[client]),
                damping=float(state.damping[client]),
            )
            contents[client] = wire.train_content(arrays, task, self.more, extras)
        return contents

    def _task(self, server_round: int, partition_id: int, **more: Any) -> wire.TrainTask:
        partition, tests = self.options.partition, self._run.test_partition
        return wire.TrainTask(
            server_round=server_round,
            partition_id=partition_id,
            configuration=self.configuration_text(partition_id),
            num_classes=self.options.num_classes,
            examples=None if partition is None else partition[partition_id],
            test_examples=None if tests is None else tests[partition_id],
            run_folder=self._run.folder if self.federation.simulated else "",
            run_key=self._run.key,
            likelihood_examples=self._likelihood_examples,
            **more,
        )


def _num_examples(federation: Federation, options: ClientOptions) -> dict[int, int]:
    held_back = options.configuration.held_back_share if options.configuration else 0.0
    parts = [None] * federation.size if options.partition is None else options.partition
    most = options.max_examples
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
            if held_back:
                from bfl.closing.base import held_back_count

                known[partition_id] -= max(0, held_back_count(examples, held_back))
    return known
