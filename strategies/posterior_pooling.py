"""The Strategy that pools clients' posteriors with any rule and any weighting."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from logging import INFO, WARNING
from typing import Any, ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from bfl import randomness
from bfl.errors import PosteriorError, RunError
from bfl.pooling import Pooled, PoolingRule, pool
from bfl.posteriors import Posterior
from bfl.weightings import Weighting
from bfl.wire import (
    ARRAYS,
    METRICS,
    Positions,
    TrainTask,
    posterior_from_arrays,
    posterior_to_arrays,
    train_content,
)
from strategies.federation import Federation, discover
from strategies.sampling import sample_partitions


@dataclass(frozen=True)
class ClientUpdate:
    """What one client has sent back.

    Attributes:
        partition_id: Which client it is.
        posterior: Its posterior.
        num_examples: Its number of training examples.
        metrics: All that it has measured.
    """

    partition_id: int
    posterior: Posterior
    num_examples: int
    metrics: dict[str, float]


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
        configuration: The run's configuration as a JSON object of flat keys, sent to the clients.
        num_classes: The number of classes, sent to the clients.
        partition: The examples of each client, by partition id; None where nodes have their own.
        clients: The number of clients; 0: as many as there are SuperNodes.
        fraction_train: The share of the clients that train in a round.
        seed: The run's seed.
        node_timeout: Seconds to wait for all nodes before the first round.
        on_round: Called after each round.

    Source: Fischer et al. (2024), Algorithm 1.
    """

    rule_class: ClassVar[type[PoolingRule] | None] = None

    def __init__(
        self,
        *,
        weighting: Weighting,
        rule: PoolingRule | None = None,
        configuration: str = "{}",
        num_classes: int = 10,
        partition: Sequence[Positions | None] | None = None,
        clients: int = 0,
        fraction_train: float = 1.0,
        seed: int = 0,
        node_timeout: float = 300.0,
        on_round: Callable[[Round], None] | None = None,
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
        self.configuration = configuration
        self.num_classes = num_classes
        self.partition = partition
        self.clients = clients
        self.fraction_train = fraction_train
        self.seed = seed
        self.node_timeout = node_timeout
        self.on_round = on_round
        self.federation: Federation | None = None
        self._previous: Posterior | None = None

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
        return [
            Message(
                train_content(arrays, self._task(server_round, partition_id)),
                federation.nodes[partition_id],
                MessageType.TRAIN,
                group_id=str(server_round),
            )
            for partition_id in sample_partitions(
                self.seed, server_round, federation.size, self.fraction_train
            )
        ]

    def _task(self, server_round: int, partition_id: int) -> TrainTask:
        return TrainTask(
            server_round=server_round,
            partition_id=partition_id,
            configuration=self.configuration,
            num_classes=self.num_classes,
            examples=None if self.partition is None else self.partition[partition_id],
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Pool the posteriors in the clients' replies, in the order of their partition ids.

        Raises:
            RunError: No client has sent a usable posterior.
        """
        updates, failures = self._updates(replies)
        if not updates:
            raise RunError(f"round {server_round}: none of {failures} clients has trained")
        pooled = self.pool(server_round, updates)
        metrics = {
            "clients": len(updates),
            "failures": failures,
            **mean_metrics(updates),
            **pooled.diagnostics,
        }
        return posterior_to_arrays(pooled.posterior), MetricRecord(dict(metrics))

    def pool(self, server_round: int, updates: Sequence[ClientUpdate]) -> Pooled:
        """Return the pooled posterior of clients' updates, sorted by partition id."""
        posteriors = [update.posterior for update in updates]
        weights = self.weighting.weigh(
            posteriors, [update.num_examples for update in updates], self._previous
        )
        return pool(
            self.rule,
            posteriors,
            weights,
            previous=self._previous,
            generators=[
                randomness.generator(self.seed, "pooling", server_round, update.partition_id)
                for update in updates
            ],
        )

    def _updates(self, replies: Iterable[Message]) -> tuple[list[ClientUpdate], int]:
        """Return the usable updates, sorted by partition id, and the number of the others."""
        federation = self.federation
        assert federation is not None, "configure_train comes first"
        updates, failures = [], 0
        for reply in replies:
            partition_id = federation.partition_of(reply.metadata.src_node_id)
            try:
                updates.append(self._read(partition_id, reply))
            except (PosteriorError, KeyError, TypeError, ValueError) as error:
                failures += 1
                log(WARNING, "client %d: %s", partition_id, error)
        return sorted(updates, key=lambda update: update.partition_id), failures

    def _read(self, partition_id: int, reply: Message) -> ClientUpdate:
        if reply.has_error():
            raise ValueError(reply.error.reason)
        arrays: Any = reply.content[ARRAYS]
        metrics: Any = reply.content[METRICS]
        posterior = posterior_from_arrays(arrays)
        posterior.check(like=self._previous)
        return ClientUpdate(
            partition_id=partition_id,
            posterior=posterior,
            num_examples=int(metrics["num-examples"]),
            metrics={key: float(value) for key, value in metrics.items()},
        )

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

        Raises:
            RunError: A round has no usable update.
        """
        arrays, result = initial_arrays, Result()
        config = train_config or ConfigRecord()
        self.join(grid)
        for server_round in range(1, num_rounds + 1):
            started = time.perf_counter()
            messages = self.configure_train(server_round, arrays, config, grid)
            replies = grid.send_and_receive(messages, timeout=timeout)
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


def mean_metrics(updates: Sequence[ClientUpdate]) -> dict[str, float]:
    """Return the clients' metrics, averaged with their numbers of examples; their total number."""
    counts = np.array([update.num_examples for update in updates], np.float64)
    names = [name for name in updates[0].metrics if name != "num-examples"]
    means = {
        name: float(np.average([update.metrics[name] for update in updates], weights=counts))
        for name in names
    }
    return {"num-examples": float(counts.sum()), **means}
