"""The course of a Strategy's federation: its clients, its state and the round in progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid

from bfl.learning.networks.parametrizations import SOFTPLUS, Parametrization
from strategies.federation import discover
from strategies.flower_clients import FlowerClients, RetryPolicy, TaskTemplate
from strategies.messaging import UsableReplies
from strategies.preflight import (
    check_exchange,
    check_memory,
    check_method,
    initial_posterior,
    known_configuration,
    text_for_clients,
    unknown_moving_statistics,
)
from strategies.round import OpenRound
from strategies.server_state import PooledRound, PooledRounds, ServerState
from strategies.warnings import Warnings

if TYPE_CHECKING:
    from strategies.posterior_pooling import PosteriorPooling

UNFINISHED = "pooled-round"
"""The folder in a run's, with the round that is pooled and not yet refined."""


@dataclass
class Course:
    """State of a Strategy between its two halves.

    Attributes:
        grid: Flower's grid.
        clients: The clients of the federation.
        warnings: Tells what goes wrong with them.
        state: Where the federation stands.
        parametrization: The parametrization of the clients' network.
        unfinished: Where a pooled round is kept until it is refined, if the run has a folder.
        begun: The last round that has begun.
        opened: That round, until it is pooled.
        messages: Its messages.
        usable: How many of their replies are usable so far.
        pooled: What the last round has led to, without the clients' models.
    """

    grid: Grid
    clients: FlowerClients
    warnings: Warnings
    state: ServerState
    parametrization: Parametrization
    unfinished: PooledRounds | None
    begun: int
    opened: OpenRound | None = None
    messages: Sequence[Message] = ()
    usable: UsableReplies = field(default_factory=lambda: UsableReplies(1))
    pooled: PooledRound = field(init=False)

    def begin(self, server_round: int, opened: OpenRound, config: ConfigRecord) -> None:
        """Begin a round; clients are sent some values of a ServerApp's own with its messages."""
        self.begun, self.opened = server_round, opened
        self.clients.send_too(config)

    def ask(self) -> Sequence[Message]:
        """Return the messages of the round that has begun; none if it is pooled without replies."""
        if self.opened is None or self.opened.pooled or not self.opened.by_replies:
            return []
        self.usable = self.clients.usable(self.opened.request)
        self.messages = self.clients.messages(self.opened.request)
        return self.messages

    def end(self, pooled: PooledRound) -> None:
        """End the round, which has led to a state."""
        self.state, self.pooled = pooled.state, replace(pooled, models=None)
        self.opened, self.messages = None, ()


def begin_course(
    strategy: PosteriorPooling, grid: Grid, arrays: ArrayRecord, timeout: float, num_rounds: int
) -> Course:
    """Wait for the nodes and refuse what does not go together, before anybody trains.

    Args:
        strategy: The Strategy.
        grid: Flower's grid.
        arrays: The global posterior.
        timeout: Seconds without any reply after which a round goes on without the rest.
        num_rounds: The number of rounds.

    Raises:
        ConfigurationError: Something does not go together.
        RunError: Nodes are missing.
    """
    method = strategy.method
    initial = initial_posterior(arrays, strategy.manifest)
    known = known_configuration(strategy.configuration)
    check_method(method, initial, known, strategy.server, strategy.round_retries, strategy.manifest)
    method.declared(initial)  # refuses what does not fit before anybody trains
    # Examples are assigned by partition ids, and parts keep clients' states by them.
    by_order = strategy.partition is None and not method.parts
    federation = strategy.run.federation or discover(
        grid, strategy.clients, strategy.node_timeout, by_order=by_order
    )
    asked = _asked(strategy, federation.size, num_rounds)
    check_memory(method, initial, asked, kept=bool(strategy.run.folder))
    for text in unknown_moving_statistics(method.server_optimizer, initial, strategy.manifest):
        strategy.on_warning(text)
    warnings = Warnings(strategy.on_warning)
    clients = FlowerClients(
        grid,
        federation,
        TaskTemplate(
            configuration=text_for_clients(strategy.configuration),
            configuration_without_paths=text_for_clients(strategy.configuration, paths=False),
            num_classes=strategy.num_classes,
            partition=strategy.partition,
            test_partition=strategy.run.test_partition,
            run_folder=strategy.run.folder if federation.simulated else "",
            run_key=strategy.run.key,
            calibration_share=known.keys.calibration_share if known else 0.0,
            counts_all_examples=bool(known and known.inference.counts_all_examples),
        ),
        RetryPolicy(timeout, strategy.min_clients, strategy.round_retries),
        max_examples=strategy.max_examples,
        manifest=strategy.manifest,
        warn=warnings.of_client,
    )
    check_exchange(method, known, initial, clients.num_examples, asked, clients.retry_policy.needed)
    state = strategy.run.state or ServerState.first(
        initial, federation.size, method.begin(initial, federation.size)
    )
    parametrization = known.inference.parametrization if known else SOFTPLUS
    kept = _unfinished(strategy)
    return Course(grid, clients, warnings, state, parametrization, kept, state.server_round)


def _unfinished(strategy: PosteriorPooling) -> PooledRounds | None:
    """Return where a pooled round is kept until it is refined, if the run has a folder."""
    if not strategy.run.folder:
        return None
    # The run's key stands for a configuration that a resume has compared already, but for keys
    # that change no result.
    known = strategy.run.key or text_for_clients(strategy.configuration)
    return PooledRounds(
        Path(strategy.run.folder) / UNFINISHED, f"{known} {strategy.seed} {strategy.method!r}"
    )


def _asked(strategy: PosteriorPooling, size: int, num_rounds: int) -> dict[int, list[int]]:
    """Return who of so many clients is asked, by the round's number.

    Of every round where weights decide on what is refused, and else of the first, which stands
    for all.
    """
    sums_alone = strategy.method.exchange.secure_sums is not None
    last = max(num_rounds, 1) if sums_alone else 1
    return {
        number: strategy.method.sampling.sample(strategy.seed, number, size)
        for number in range(1, last + 1)
    }
