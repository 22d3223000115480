"""The clients of a federation over Flower: what they are asked, and what they answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from bfl.errors import ConfigurationError, RunError
from bfl.federation.client_text import neutralized
from bfl.federation.wire import (
    Positions,
    TrainTask,
    posterior_to_arrays,
    record_beside,
    train_content,
)
from bfl.posteriors import Manifest
from strategies.examples import ExampleCounts
from strategies.exchange import UsableReplies, exchange_with_retries
from strategies.federation import Federation
from strategies.masked_clients import MaskedAttempt, with_attempts
from strategies.pool_sums import ClientsSum, WantedSum
from strategies.training_request import TrainingRequest
from strategies.updates import ClientUpdate, usable_updates


@dataclass(frozen=True)
class Patience:
    """How long the server waits for clients, and how few of them it goes on with.

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
    """What of a task is the same in all rounds.

    Attributes:
        configuration: The run's configuration as a JSON object of flat keys.
        configuration_without_paths: The same for nodes that do not look for the run's data where
            the server has them.
        num_classes: The number of classes.
        partition: The examples of each client, by partition id; None where nodes have their own.
        test_partition: The test examples of each client, likewise; None where clients do not judge.
        run_folder: The run's folder, for clients that keep a state in a simulation.
        run_key: The run's own word, for clients that keep a state on nodes of their own.
        more: Values of a ServerApp's own, for its own clients.
        calibration_share: What share of its examples each client holds back from training.
    """

    configuration: str
    configuration_without_paths: str
    num_classes: int
    partition: Sequence[Positions | None] | None
    test_partition: Sequence[Positions | None] | None
    run_folder: str
    run_key: str
    more: ConfigRecord
    calibration_share: float = 0.0

    def text(self, paths: bool) -> str:
        """Return the configuration for a node that looks where the server has the data, or not."""
        return self.configuration if paths else self.configuration_without_paths

    def task(self, request: TrainingRequest, partition_id: int, paths: bool) -> TrainTask:
        """Return what a client is asked in a round; for ``paths`` see ``text``."""
        return TrainTask(
            server_round=request.server_round,
            partition_id=partition_id,
            configuration=self.text(paths),
            num_classes=self.num_classes,
            examples=None if self.partition is None else self.partition[partition_id],
            test_examples=None
            if self.test_partition is None
            else self.test_partition[partition_id],
            run_folder=self.run_folder,
            run_key=self.run_key,
            pooled_round=request.pooled_rounds[partition_id],
            damping=request.damping[partition_id],
        )


Warn = Callable[[int, int, str], None]
"""Told the round, the partition and the reason when a client has failed or is refused."""


class FlowerClients:
    """The clients of a federation over Flower.

    Args:
        grid: Flower's grid.
        federation: The nodes; those that are gone are looked for again before each round.
        template: What of a task is the same in all rounds.
        patience: How long they are waited for.
        max_examples: The most examples that a client may claim to hold of its own.
        manifest: The parameters of the network, where the server knows them.
        warn: Told what goes wrong with a client.

    Raises:
        ConfigurationError: The partition or a node's own data do not fit.
    """

    def __init__(
        self,
        grid: Grid,
        federation: Federation,
        template: TaskTemplate,
        patience: Patience,
        *,
        max_examples: int,
        manifest: Manifest | None,
        warn: Warn,
    ) -> None:
        self.federation = federation
        self._grid = grid
        self._template = template
        self.patience = patience
        self._manifest = manifest
        self._warn = warn
        # What was known before the first round; who comes later is held to it.
        self._examples = ExampleCounts.of(
            federation, template.partition, max_examples, template.calibration_share
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
        """How many examples the clients hold, by partition id, as far as the server knows."""
        return self._examples.known

    def train(
        self, request: TrainingRequest, on_refused: Callable[[int], None]
    ) -> Iterator[ClientUpdate]:
        """Yield the usable updates of a round; see ``strategies.round.Clients``.

        Raises:
            RunError: Fewer clients than ``min-clients`` have sent a usable update, or the engine
                has died; a LostStateError where so many have lost what they kept that it will stay
                so.
        """
        number = request.server_round
        usable = UsableReplies(self.patience.needed(len(request.partition_ids)))

        def warn(partition_id: int, text: str) -> None:
            self._warn(number, partition_id, neutralized(text))

        self.federation = self.federation.refreshed(self._grid, warn)
        partition_of = self.federation.partition_of
        replies = exchange_with_retries(
            self._grid,
            self._messages(request),
            silence=self.patience.silence,
            retries=self.patience.retries,
            usable=usable,
            report=lambda node, reason: warn(partition_of(node), f"failed: {reason}"),
        )
        yield from usable_updates(
            replies,
            request,
            partition_of=partition_of,
            examples=self._examples,
            manifest=self._manifest,
            usable=usable,
            warn=warn,
            on_refused=on_refused,
        )

    def add_up(self, request: TrainingRequest, wanted: WantedSum) -> ClientsSum:
        """Return the sum of a round's clients; see ``strategies.round.Clients``.

        Raises:
            RunError: Fewer clients than ``min-clients`` have stayed, or than it takes to take masks
                off, in every attempt; or rounding could carry their pool too far, and nobody was
                asked; or the engine has died.
        """
        number, patience = request.server_round, self.patience
        needed = patience.needed(len(request.partition_ids))
        try:
            wanted.check(needed)
        except ConfigurationError as error:
            raise RunError(
                f"round {number} was not begun, and no client was asked: {error}; the range is "
                "that of the whole run: begin another one with these keys changed"
            ) from error

        def warn(partition_id: int, text: str) -> None:
            self._warn(number, partition_id, neutralized(text))

        def attempt(left_out: Set[int]) -> ClientsSum:
            self.federation = self.federation.refreshed(self._grid, warn)
            contents = self._contents(request).items()
            return MaskedAttempt(
                self._grid,
                self.federation,
                number,
                wanted,
                {client: content for client, content in contents if client not in left_out},
                configuration=self._text,
                silence=patience.silence,
                warn=warn,
                message_type=request.message_type,
            ).run(needed)

        return with_attempts(attempt, patience.retries, number, warn)

    def _text(self, partition_id: int) -> str:
        return self._template.text(self.federation.reads_run_paths(partition_id))

    def _messages(self, request: TrainingRequest) -> list[Message]:
        return [
            Message(
                content,
                self.federation.nodes[partition_id],
                request.message_type,
                group_id=str(request.server_round),
            )
            for partition_id, content in self._contents(request).items()
        ]

    def _contents(self, request: TrainingRequest) -> dict[int, RecordDict]:
        """Return what each client is sent, by partition id."""
        # One record for all: the clients of a round are sent the same.
        arrays = posterior_to_arrays(request.posterior, request.vectors)
        beside = record_beside(request.broadcast)
        template = self._template
        return {
            partition_id: train_content(
                arrays,
                template.task(request, partition_id, self.federation.reads_run_paths(partition_id)),
                template.more,
                beside,
            )
            for partition_id in request.partition_ids
        }
