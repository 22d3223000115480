"""The clients of a federation over Flower: what they are asked, and what they answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from bfl import randomness
from bfl.deployment.client_list import client_name
from bfl.errors import LostStateError, RunError
from bfl.experiments.results.evaluated_clients import impossible_numbers
from bfl.federation.client_metrics import neutralized
from bfl.federation.wire import (
    RUN_CANNOT_GO_ON,
    Positions,
    TrainTask,
    extras_record,
    posterior_to_arrays,
    train_content,
)
from bfl.posteriors import Manifest
from strategies.examples import ExampleCounts
from strategies.federation import Federation
from strategies.messaging import NO_REPLY_FOR, UsableReplies, exchange_with_retries
from strategies.plausibility import Plausibility
from strategies.pool_updates import mean_metrics
from strategies.round import TrainingRequest
from strategies.updates import (
    ClientUpdate,
    RefusedUpdateError,
    in_order,
    measured,
    read_update,
)


@dataclass(frozen=True)
class RetryPolicy:
    """Limits of waiting for clients: for how long, and for how few.

    Attributes:
        silence: Seconds without hearing from any client after which a round goes on without those
            that have not replied.
        min_clients: How many of the clients asked have to send a usable posterior: below 1 a share
            of them, from 1 a number.
        retries: How often clients that fail are asked again when there are fewer.
    """

    silence: float
    min_clients: float
    retries: int

    def needed(self, asked: int) -> int:
        """Return how many of so many clients have to send a usable posterior, at least 1."""
        share = self.min_clients * asked if self.min_clients < 1 else min(self.min_clients, asked)
        return max(1, math.ceil(share - 1e-9))


@dataclass(frozen=True)
class TaskTemplate:
    """Parts of a task that are the same in all rounds.

    Attributes:
        configuration: The run's configuration as a JSON object of flat keys.
        configuration_without_paths: The same for nodes that do not look for the run's data where
            the server has them.
        partition: The examples of each client, by partition id; None where nodes have their own.
        test_partition: Their test examples; None where clients do not evaluate.
        run_folder: The run's folder, for clients that keep a state in a simulation.
        run_key: The run's own word, for clients that keep a state on nodes of their own.
        calibration_share: What share of its examples each client holds back from training.
        counts_all_examples: Whether a client's likelihood counts as many examples as all have.
    """

    configuration: str
    configuration_without_paths: str
    num_classes: int
    partition: Sequence[Positions | None] | None
    test_partition: Sequence[Positions | None] | None
    run_folder: str
    run_key: str
    calibration_share: float = 0.0
    counts_all_examples: bool = False

    def text(self, paths: bool) -> str:
        """Return the configuration for a node that looks where the server has the data, or not."""
        return self.configuration if paths else self.configuration_without_paths

    def task(self, server_round: int, partition_id: int, paths: bool) -> TrainTask:
        """Return what a client is asked in a round; for ``paths`` see ``text``."""
        return TrainTask(
            server_round=server_round,
            partition_id=partition_id,
            configuration=self.text(paths),
            num_classes=self.num_classes,
            examples=None if self.partition is None else self.partition[partition_id],
            test_examples=None
            if self.test_partition is None
            else self.test_partition[partition_id],
            run_folder=self.run_folder,
            run_key=self.run_key,
        )


STOPPED_ANSWERING, FAILED, REFUSED = "stopped answering", "failed", "update refused"
"""Reasons for which a round is made without a client, in its record."""

Warn = Callable[[str, int, str], None]
"""Told the round in words, the partition and the reason when a client has failed or is refused."""


class FlowerClients:
    """The clients of a federation over Flower.

    Args:
        federation: The nodes; those that are gone are looked for again before each round.
        template: What of a task is the same in all rounds.
        retry_policy: How long they are waited for, and how often asked again.
        max_examples: The most examples that a client may claim to hold of its own.
        manifest: The parameters of the network, where the server knows them.
        warn: Told what goes wrong with a client.

    Attributes:
        retry_policy: How long they are waited for, and how often asked again.
        more: Values of a ServerApp's own, for its own clients, sent from now on.

    Raises:
        ConfigurationError: The partition or a node's own data do not fit.
    """

    def __init__(
        self,
        grid: Grid,
        federation: Federation,
        template: TaskTemplate,
        retry_policy: RetryPolicy,
        *,
        max_examples: int,
        manifest: Manifest | None,
        warn: Warn,
    ) -> None:
        self.federation = federation
        self.more = ConfigRecord()
        self.grid = grid
        self._template = template
        self.retry_policy = retry_policy
        self._manifest = manifest
        self._warn = warn
        self._before = ""  # whose values were far from the others' in the round before
        # What was known before the first round; who comes later is held to it.
        self._examples = ExampleCounts.of(
            federation, template.partition, max_examples, template.calibration_share
        )
        self._likelihood_examples = (
            self._examples.total(federation.size) if template.counts_all_examples else 0
        )

    @property
    def size(self) -> int:
        """The number K of clients."""
        return self.federation.size

    @property
    def most_examples(self) -> int:
        """The most examples that a client may claim whose number the server does not know."""
        return self._examples.most

    @property
    def num_examples(self) -> Mapping[int, int]:
        """Numbers of the clients' examples by partition id, as far as the server knows."""
        return self._examples.known

    def train(self, request: TrainingRequest) -> Iterator[ClientUpdate]:
        """Yield the usable updates of a round in the order of partition ids.

        They come while others are still training.

        Raises:
            RunError: See ``updates``, or the engine has died.
        """
        replies = self.replies(request, self.messages(request))
        yield from self.updates(request, replies=replies)

    def messages(self, request: TrainingRequest) -> list[Message]:
        """Return the messages of a round; nodes that have come take the place of those gone."""
        self.refresh(request.called)
        request.usable = UsableReplies(self.retry_policy.needed(len(request.partition_ids)))
        return [
            self.message(partition_id, content, request.message_type, request.server_round)
            for partition_id, content in self.contents(request).items()
            if partition_id not in request.implausible
        ]

    def refresh(self, called: str) -> None:
        """Have nodes that have come take the place of those gone, in a round that is so called."""
        self.federation = self.federation.refreshed(self.grid, self.warning(called))

    def replies(self, request: TrainingRequest, messages: Sequence[Message]) -> Iterator[Message]:
        """Send messages and yield the replies as they come; ask again whose are lost.

        Raises:
            RunError: The engine has died.
        """
        warn, partition_of = self.warning(request.called), self.federation.partition_of
        return exchange_with_retries(
            self.grid,
            messages,
            silence=self.retry_policy.silence,
            retries=self.retry_policy.retries,
            usable=request.usable,
            report=lambda node, reason: warn(partition_of(node), f"failed: {reason}"),
        )

    def updates(
        self, request: TrainingRequest, *, replies: Iterable[Message]
    ) -> Iterator[ClientUpdate]:
        """Yield the usable updates in the replies to a round's messages, by partition id.

        Args:
            request: What they answer, where each is counted as it comes.
            replies: The clients' replies, in any order, while others are still training.

        Raises:
            RunError: Fewer clients than ``min-clients`` have sent a usable update; a LostStateError
                where so many have lost what they kept that it will stay so.
        """
        warn, usable, left_out = self.warning(request.called), request.usable, request.left_out
        asked, lost = len(request.partition_ids), set[int]()

        def checked(reply: Message, partition_id: int) -> ClientUpdate | None:
            if reply.has_error():
                if reply.error.code == RUN_CANNOT_GO_ON:
                    lost.add(partition_id)
                usable.failed += 1
                silent = NO_REPLY_FOR in str(reply.error.reason)
                left_out[partition_id] = STOPPED_ANSWERING if silent else FAILED
                warn(partition_id, f"failed: {reply.error.reason}")
                return None
            try:
                update = self._read(reply, partition_id, request)
            except RefusedUpdateError as error:
                refuse(partition_id, str(error))
                return None
            usable.found += 1
            return update

        def refuse(partition_id: int, problem: str) -> None:
            usable.refused += 1
            left_out[partition_id] = REFUSED
            warn(partition_id, f"update refused: {problem}")

        def refuse_after_all(partition_id: int, problem: str) -> None:
            usable.found -= 1
            refuse(partition_id, problem)

        for partition_id, problem in sorted(request.implausible.items()):
            refuse(partition_id, problem)
        judge = Plausibility(request.posterior, request.broadcast, refuse_after_all)
        partition_of = self.federation.partition_of
        updates = in_order(replies, request.partition_ids, partition_of, checked)
        for update in updates if request.expected else judge.judged(updates):
            if lies := dict(impossible_numbers(update.metrics)):
                said = ", ".join(f"{name} {value:g}" for name, value in lies.items())
                warn(update.partition_id, f"says what cannot be, left out of means: {said}")
            yield update
        if not usable.enough:
            # Whether those that are left could do without the ones that cannot come back.
            failure = LostStateError if asked - len(lost) < usable.needed else RunError
            raise failure(
                f"{request.called}: {usable.found} of {asked} clients have sent a "
                f"usable posterior, and min-clients asks for {usable.needed}{self._before}"
            )
        request.suspicion = judge.suspicion()
        self._before = f"; in {request.called} {request.suspicion}" if request.suspicion else ""

    def _read(self, reply: Message, partition_id: int, request: TrainingRequest) -> ClientUpdate:
        """Return the update in a client's reply, if it is what the round's options take.

        Raises:
            RefusedUpdateError: It is not, or not what an update should be.
        """
        update = read_update(
            reply,
            partition_id,
            request.expected or request.posterior,
            manifest=None if request.expected else self._manifest,
            num_examples=self.num_examples.get(partition_id),
            most_examples=self.most_examples,
            declared=request.declared,
            unpack=request.unpack,
        )
        for problem in filter(None, (each(update) for each in request.problems)):
            raise RefusedUpdateError(problem)
        return update

    def warning(self, called: str) -> Callable[[int, str], None]:
        """Return what is told the client and the reason in a round that is so called."""

        def warn(client: int, text: str) -> None:
            name = client_name(self.federation.nodes[client])
            self._warn(f"{called}, {name}" if name else called, client, neutralized(text))

        return warn

    def to_evaluate(
        self, server_round: int, arrays: ArrayRecord, share: float, seed: int
    ) -> list[Message]:
        """Return messages that ask a share of the clients, at least one, to evaluate arrays."""
        drawn = randomness.generator(seed, "evaluate", server_round)
        count = min(self.size, max(1, round(share * self.size)))
        chosen = sorted(int(i) for i in drawn.choice(self.size, size=count, replace=False))
        return [
            self.message(
                partition_id,
                train_content(arrays, self._task(server_round, partition_id), self.more),
                MessageType.EVALUATE,
                server_round,
            )
            for partition_id in chosen
        ]

    def evaluated(self, server_round: int, replies: Iterable[Message]) -> dict[str, float]:
        """Return the metrics of clients that have evaluated, averaged with their examples."""
        warn = self.warning(f"round {server_round}")
        found = in_order(
            replies,
            range(self.size),
            self.federation.partition_of,
            lambda reply, client: measured(reply, client, self.most_examples, warn),
        )
        return mean_metrics(list(found))

    def configuration_text(self, partition_id: int) -> str:
        """Return the run's configuration as a client is sent it."""
        return self._template.text(self.federation.reads_run_paths(partition_id))

    def message(
        self, partition_id: int, content: RecordDict, message_type: str, server_round: int
    ) -> Message:
        """Return a message to the node that plays a client."""
        node = self.federation.nodes[partition_id]
        return Message(content, node, message_type, group_id=str(server_round))

    def contents(self, request: TrainingRequest) -> dict[int, RecordDict]:
        """Return what each client is sent, by partition id."""
        # One record for all: the clients of a round are sent the same.
        arrays = posterior_to_arrays(request.posterior, request.vectors)
        extras = extras_record(request.broadcast)
        return {
            partition_id: train_content(
                arrays,
                replace(
                    self._task(request.server_round, partition_id),
                    pooled_round=request.last_pooled[partition_id],
                    damping=request.damping[partition_id],
                ),
                self.more,
                extras,
            )
            for partition_id in request.partition_ids
        }

    def _task(self, server_round: int, partition_id: int) -> TrainTask:
        paths = self.federation.reads_run_paths(partition_id)
        task = self._template.task(server_round, partition_id, paths)
        return replace(task, likelihood_examples=self._likelihood_examples)
