"""The Strategy that pools clients' posteriors with any rule and any weighting."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from logging import INFO, WARNING
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from bfl import randomness
from bfl.defences import Defence, defences
from bfl.defences.none import NoDefence
from bfl.engine.resources import cpus_of_this_process
from bfl.errors import RunError
from bfl.pooling import Pooled, PoolingRule, pool, pool_weighted
from bfl.posteriors import Posterior
from bfl.weightings import Weighting
from bfl.wire import (
    Positions,
    TrainTask,
    posterior_from_arrays,
    posterior_to_arrays,
    train_content,
)
from strategies.exchange import exchange_with_retries
from strategies.federation import Federation, discover
from strategies.foreseen_weights import ForeseenWeights
from strategies.intake import Intake
from strategies.sampling import sample_partitions
from strategies.updates import ClientUpdate, mean_metrics, read_update


@dataclass(frozen=True)
class Round:
    """What one round has given, for whoever looks on.

    Attributes:
        number: The round, from 1.
        posterior: The global posterior after it.
        metrics: What clients and pooling have measured.
        seconds: How long training and pooling took.
    """

    number: int
    posterior: Posterior
    metrics: dict[str, float]
    seconds: float


class PosteriorPooling(Strategy):
    """Pools clients' posteriors with any rule and any weighting.

    Clients are sampled by (seed, round) and pooled in the order of their partition ids, whatever
    their node ids and the order in which they finish, so that one seed gives one result.

    Args:
        rule: The pooling rule. The named subclasses (``strategies.Conflation``, ...) make their own
            from keyword arguments.
        weighting: What the clients' weights are.
        defence: What is done to the clients' posteriors before; by default nothing.
        configuration: The run's configuration as a JSON object of flat keys, sent to the clients.
        num_classes: The number of classes, sent to the clients.
        partition: The examples of each client, by partition id; None where nodes have their own.
        run_folder: The run's folder, for clients that keep a state in a simulation.
        clients: The number of clients; 0: as many as there are SuperNodes.
        fraction_train: The share of the clients that train in a round.
        seed: The run's seed.
        node_timeout: Seconds to wait for all nodes before the first round.
        min_clients: How many of the clients asked have to send a usable posterior: below 1 a share
            of them, from 1 a number.
        round_retries: How often clients that fail are asked again when there are fewer.
        on_round: Called after each round.
        on_warning: Called with what goes wrong with clients; by default it is logged.

    Source: Fischer et al. (2024), Algorithm 1.
    """

    rule_class: ClassVar[type[PoolingRule] | None] = None

    def __init__(
        self,
        *,
        weighting: Weighting,
        rule: PoolingRule | None = None,
        defence: Defence | None = None,
        configuration: str = "{}",
        num_classes: int = 10,
        partition: Sequence[Positions | None] | None = None,
        run_folder: str = "",
        clients: int = 0,
        fraction_train: float = 1.0,
        seed: int = 0,
        node_timeout: float = 300.0,
        min_clients: float = 0.5,
        round_retries: int = 2,
        on_round: Callable[[Round], None] | None = None,
        on_warning: Callable[[str], None] | None = None,
        **rule_settings: Any,
    ) -> None:
        if rule is None:
            if self.rule_class is None:
                raise TypeError("PosteriorPooling needs a rule; its named subclasses have theirs")
            rule = self.rule_class(**rule_settings)
        elif rule_settings:
            raise TypeError(f"unexpected arguments: {', '.join(rule_settings)}")
        self.rule = rule
        self.weighting = weighting
        self.defence = defence or defences.create("none")
        self.configuration = configuration
        self.num_classes = num_classes
        self.partition = partition
        self.run_folder = run_folder
        self.clients = clients
        self.fraction_train = fraction_train
        self.seed = seed
        self.node_timeout = node_timeout
        self.min_clients = min_clients
        self.round_retries = round_retries
        self.on_round = on_round
        self.on_warning = on_warning
        self.first_round = 1
        self.federation: Federation | None = None
        self._previous: Posterior | None = None
        self._sampled: list[int] = []
        self._told: set[str] = set()

    def summary(self) -> None:
        """Log what the strategy is."""
        log(INFO, "\t├──> Pooling rule: %s", self.rule.name)
        log(INFO, "\t├──> Weighting: %s", self.weighting.name)
        log(INFO, "\t└──> Fraction of clients: %.2f", self.fraction_train)

    def join(self, grid: Grid) -> Federation:
        """Return the federation; the first call waits for all its nodes."""
        if self.federation is None:
            self.federation = discover(grid, self.clients, self.node_timeout)
        return self.federation

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages that ask the clients of a round to train."""
        federation = self.join(grid)
        self._previous = posterior_from_arrays(arrays)
        self._sampled = sample_partitions(
            self.seed, server_round, federation.size, self.fraction_train
        )
        return [
            Message(
                train_content(arrays, self._task(server_round, partition_id)),
                federation.nodes[partition_id],
                MessageType.TRAIN,
                group_id=str(server_round),
            )
            for partition_id in self._sampled
        ]

    def _task(self, server_round: int, partition_id: int) -> TrainTask:
        return TrainTask(
            server_round=server_round,
            partition_id=partition_id,
            configuration=self.configuration,
            num_classes=self.num_classes,
            examples=None if self.partition is None else self.partition[partition_id],
            run_folder=self.run_folder,
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Pool the posteriors in the clients' replies, in the order of their partition ids.

        The replies are read as they come, and none is kept: with a weighting by numbers of examples
        and without a defence, no posterior is either.

        Raises:
            RunError: Fewer clients than ``min_clients`` have sent a usable posterior.
        """
        intake = self._intake(server_round)
        pooled = self.pool(server_round, self._enough(server_round, intake, replies))
        clients = len(intake.metrics)
        metrics = {
            "clients": clients,
            "failures": len(self._sampled) - clients - intake.refused,
            "refused": intake.refused,
            **mean_metrics(intake.metrics),
            **pooled.diagnostics,
        }
        return posterior_to_arrays(pooled.posterior), MetricRecord(dict(metrics))

    def _enough(
        self, server_round: int, intake: Intake, replies: Iterable[Message]
    ) -> Iterator[ClientUpdate]:
        """Yield the usable updates in the order of partition ids; raise if they are too few."""
        yield from intake.updates(replies)
        asked, usable = len(self._sampled), len(intake.metrics)
        if usable < self.needed(asked):
            raise RunError(
                f"round {server_round}: {usable} of {asked} clients have sent a usable posterior, "
                f"and min-clients asks for {self.needed(asked)}"
            )

    def needed(self, asked: int) -> int:
        """Return how many of so many clients have to send a usable posterior, at least 1."""
        share = self.min_clients * asked if self.min_clients < 1 else min(self.min_clients, asked)
        return max(1, math.ceil(share - 1e-9))

    def pool(self, server_round: int, updates: Iterable[ClientUpdate]) -> Pooled:
        """Return the pooled posterior of clients' updates.

        Args:
            server_round: The round.
            updates: They come while clients are still training, in the order of partition ids. A
                subclass that needs them all makes a list of them.

        Raises:
            RunError: Raised by ``updates`` when there have been too few.
        """

        def generator(update: ClientUpdate) -> np.random.Generator:
            return randomness.generator(self.seed, "pooling", server_round, update.partition_id)

        threads = cpus_of_this_process()
        foreseen = self._foreseen_weights()
        if foreseen:
            clients = (
                (u.posterior, foreseen.of(u), generator(u) if self.rule.stochastic else None)
                for u in updates
            )
            return pool_weighted(self.rule, clients, previous=self._previous, threads=threads)
        together = list(updates)
        posteriors = self.defence.protect([update.posterior for update in together])
        weights = self.weighting.weigh(
            posteriors, [update.num_examples for update in together], self._previous
        )
        return pool(
            self.rule,
            posteriors,
            weights,
            previous=self._previous,
            generators=[generator(u) for u in together] if self.rule.stochastic else None,
            threads=threads,
        )

    def _foreseen_weights(self) -> ForeseenWeights | None:
        """Return the weights of this round's clients if nothing has to wait for all updates."""
        assert self.federation is not None
        held = {
            partition_id: self.federation.own_examples[partition_id]
            if self.partition is None or (part := self.partition[partition_id]) is None
            else len(part)
            for partition_id in self._sampled
        }
        if (
            self.rule.weights_are_fractions
            or not self.weighting.counts_only
            or not isinstance(self.defence, NoDefence)
            or min(held.values()) < 1
        ):
            return None
        return ForeseenWeights(self.weighting, held)

    def _intake(self, server_round: int) -> Intake:
        assert self.federation is not None, "configure_train comes first"
        previous = self._previous
        assert previous is not None
        return Intake(
            self._sampled,
            self.federation.partition_of,
            read=lambda reply, partition_id: read_update(reply, partition_id, previous),
            warn=lambda partition_id, text: self._warn(server_round, partition_id, text),
        )

    def _warn(self, server_round: int, partition_id: int, text: str) -> None:
        """Tell once what has gone wrong with a client; the same again is told in one line."""
        reason = text if text not in self._told else f"{text.strip().splitlines()[-1]} (as before)"
        self._told.add(text)
        (self.on_warning or _log_warning)(f"round {server_round}, client {partition_id}: {reason}")

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return no messages: the global posterior is judged on the server's test set."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return nothing; see ``configure_evaluate``."""
        return None

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the rounds and return Flower's result; the arguments are Flower's.

        ``timeout`` is how long a round waits without hearing from any client before it gives up
        on those that have not replied.

        Raises:
            RunError: A round has fewer usable updates than ``min_clients``, or the engine has died.
        """
        arrays = initial_arrays
        result = Result(arrays=initial_arrays)
        config = train_config or ConfigRecord()
        self.join(grid)
        for server_round in range(self.first_round, num_rounds + 1):
            started = time.perf_counter()
            messages = list(self.configure_train(server_round, arrays, config, grid))
            replies = self._collect(server_round, grid, messages, timeout)
            pooled, metrics = self.aggregate_train(server_round, replies)
            assert pooled is not None
            assert metrics is not None
            arrays = result.arrays = pooled
            result.train_metrics_clientapp[server_round] = metrics
            seconds = time.perf_counter() - started
            evaluated = evaluate_fn(server_round, arrays) if evaluate_fn else None
            if evaluated is not None:
                result.evaluate_metrics_serverapp[server_round] = evaluated
            if self.on_round:
                self.on_round(self._round(server_round, arrays, metrics, evaluated, seconds))
        return result

    def _collect(
        self, server_round: int, grid: Grid, messages: Sequence[Message], timeout: float
    ) -> Iterator[Message]:
        """Yield a round's replies as they come, clients that fail being asked again if need be."""
        assert self.federation is not None
        partition_of = self.federation.partition_of
        return exchange_with_retries(
            grid,
            messages,
            silence=timeout,
            retries=self.round_retries,
            enough=lambda count: count >= self.needed(len(messages)),
            report=lambda node, reason: self._warn(
                server_round, partition_of(node), f"failed: {reason}"
            ),
        )

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Return what the strategy carries from round to round besides the posterior.

        A strategy with a state of its own (a server's momentum, say) extends this and
        ``load_state``; both are part of a run's checkpoints.
        """
        return {}

    def load_state(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take up what ``state`` has returned."""

    @staticmethod
    def _round(
        number: int,
        arrays: ArrayRecord,
        trained: MetricRecord,
        evaluated: MetricRecord | None,
        seconds: float,
    ) -> Round:
        merged: dict[str, Any] = {**trained, **(evaluated or {})}
        return Round(number, posterior_from_arrays(arrays), merged, seconds)


def _log_warning(text: str) -> None:
    log(WARNING, text)
