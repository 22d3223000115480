"""The Strategy that pools clients' posteriors with any rule and any weighting."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from logging import INFO, WARNING
from typing import Any, ClassVar

import numpy.typing as npt
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from bfl import randomness
from bfl.defences import Defence, defences
from bfl.engine.flower import log
from bfl.errors import PosteriorError, RunError
from bfl.pooling import Pooled, PoolingRule, pooling_rules
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.floor import SCALE_FLOOR, with_scale_floor
from bfl.weightings import Weighting, weightings
from bfl.wire import (
    Positions,
    TrainTask,
    posterior_from_arrays,
    posterior_to_arrays,
    train_content,
)
from strategies.checks import check_parts_go_with, initial_posterior
from strategies.client_records import ClientRecords
from strategies.examples import ExampleCounts
from strategies.exchange import exchange_with_retries
from strategies.federation import Federation, discover
from strategies.intake import Intake
from strategies.pool_updates import pool_updates
from strategies.rounds import Round, finished_round
from strategies.sampling import sample_partitions
from strategies.updates import ClientUpdate, mean_metrics, read_update

__all__ = ["PosteriorPooling", "Round"]

FEW_EFFECTIVE_CLIENTS = 2.0 + 1e-6
"""So many or fewer are worth a warning where three clients or more were pooled: one of them, or two
that send the same, outweigh all others."""


class PosteriorPooling(Strategy):
    """Pools clients' posteriors with any rule and any weighting.

    Clients are sampled by (seed, round) and pooled in the order of their partition ids, whatever
    their node ids and the order in which they finish, so that one seed gives one result.

    Args:
        rule: The pooling rule, by its name or itself. The named subclasses
            (``strategies.Conflation``, ...) make their own from keyword arguments.
        weighting: What the clients' weights are, likewise.
        defence: What is done to the clients' posteriors before, likewise; by default nothing.
        manifest: The parameters of the network, whose minima updates and pooled posteriors are held
            to; None where the server does not know them.
        configuration: The run's configuration as a JSON object of flat keys, sent to the clients.
        num_classes: The number of classes, sent to the clients.
        partition: The examples of each client, by partition id; None where nodes have their own.
        run_folder: The run's folder, for clients that keep a state in a simulation.
        run_key: The run's own word, by which nodes file what they keep.
        clients: The number of clients; 0: as many as there are SuperNodes.
        fraction_train: The share of the clients that train in a round.
        max_examples: The most examples that a client may claim to hold of its own.
        seed: The run's seed.
        node_timeout: Seconds to wait for all nodes before the first round.
        scale_floor: The least standard deviation of a pooled posterior; 0: none.
        min_clients: How many of the clients asked have to send a usable posterior: below 1 a share
            of them, from 1 a number.
        round_retries: How often clients that fail are asked again when there are fewer.
        on_round: Called after each round; if it returns True, no other round follows.
        on_warning: Called with what goes wrong with clients; by default it is logged.

    Source: Fischer et al. (2024), Algorithm 1.
    """

    rule_class: ClassVar[type[PoolingRule] | None] = None

    def __init__(
        self,
        *,
        weighting: Weighting | str = "train-size",
        rule: PoolingRule | str | None = None,
        defence: Defence | str = "none",
        manifest: Manifest | None = None,
        configuration: str = "{}",
        num_classes: int = 10,
        partition: Sequence[Positions | None] | None = None,
        run_folder: str = "",
        run_key: str = "",
        clients: int = 0,
        fraction_train: float = 1.0,
        max_examples: int = 1_000_000,
        seed: int = 0,
        node_timeout: float = 300.0,
        scale_floor: float = SCALE_FLOOR,
        min_clients: float = 0.5,
        round_retries: int = 2,
        on_round: Callable[[Round], bool | None] | None = None,
        on_warning: Callable[[str], None] | None = None,
        **rule_settings: Any,
    ) -> None:
        self.rule = self._made(rule, rule_settings)
        self.weighting = weightings.create(weighting) if isinstance(weighting, str) else weighting
        self.defence = defences.create(defence) if isinstance(defence, str) else defence
        self.manifest = manifest
        self.configuration = configuration
        self.num_classes = num_classes
        self.partition = partition
        self.run_folder = run_folder
        self.run_key = run_key
        self.clients = clients
        self.fraction_train = fraction_train
        self.max_examples = max_examples
        self.seed = seed
        self.node_timeout = node_timeout
        self.scale_floor = scale_floor
        self.min_clients = min_clients
        self.round_retries = round_retries
        self.on_round = on_round
        self.on_warning = on_warning
        self.first_round = 1
        self.federation: Federation | None = None
        self._counts: ExampleCounts | None = None
        self._previous: Posterior | None = None
        self._sampled: list[int] = []
        self._told: set[str] = set()
        self._told_of_weights = False
        self._client_records: list[dict[str, Any]] = []

    def _made(self, rule: PoolingRule | str | None, settings: Mapping[str, Any]) -> PoolingRule:
        """Return the rule that was given, or named, or that a subclass stands for."""
        if isinstance(rule, PoolingRule):
            if settings:
                raise TypeError(f"unexpected arguments: {', '.join(settings)}")
            return rule
        cls = self.rule_class if rule is None else pooling_rules.get(rule)
        if cls is None:
            raise TypeError("PosteriorPooling needs a rule; its named subclasses have theirs")
        return cls(**settings)

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
        federation = self.federation = self.join(grid).refreshed(
            grid, lambda partition_id, text: self._warn(server_round, partition_id, text)
        )
        self._previous = posterior_from_arrays(arrays)
        self._sampled = sample_partitions(
            self.seed, server_round, federation.size, self.fraction_train
        )
        return [
            Message(
                train_content(arrays, self._task(server_round, partition_id), config),
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
            run_key=self.run_key,
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Pool the posteriors in the clients' replies, in the order of their partition ids.

        The replies are read as they come, and none is kept: with a weighting by numbers of examples
        and without a defence, no posterior is either.

        Raises:
            RunError: Fewer clients than ``min_clients`` have sent a usable posterior, or what is
                pooled is none.
        """
        intake = self._intake(server_round)
        records = ClientRecords()
        try:
            updates = records.noted(self._enough(server_round, intake, replies))
            pooled = self.pool(server_round, updates)
            if self.manifest:
                self.manifest.check(pooled.posterior)
        except PosteriorError as error:
            raise RunError(f"round {server_round}, pooling: {error}") from error
        self._client_records = records.with_weights(pooled.weights)
        floored = with_scale_floor(pooled.posterior, self.scale_floor)
        clients = len(intake.measured)
        self._warn_of_weights(server_round, clients, pooled.diagnostics)
        metrics = {
            "clients": clients,
            "failures": len(self._sampled) - clients - intake.refused,
            "refused": intake.refused,
            **mean_metrics(intake.measured),
            **pooled.diagnostics,
            **floored.diagnostics,
        }
        return posterior_to_arrays(floored.posterior), MetricRecord(dict(metrics))

    def _warn_of_weights(
        self, server_round: int, clients: int, diagnostics: Mapping[str, float]
    ) -> None:
        """Tell once if one client or two of at least three outweigh all others."""
        effective = diagnostics.get("effective-clients", math.inf)
        if self._told_of_weights or clients < 3 or effective > FEW_EFFECTIVE_CLIENTS:
            return
        self._told_of_weights = True
        (self.on_warning or _log_warning)(
            f"round {server_round}: the weights of {clients} clients are worth {effective:.3g} "
            f"(effective-clients); the largest is {diagnostics['largest-weight']:.3g} (weighting "
            f"{self.weighting.name}); later rounds have the numbers in their records alone"
        )

    def _enough(
        self, server_round: int, intake: Intake, replies: Iterable[Message]
    ) -> Iterator[ClientUpdate]:
        """Yield the usable updates in the order of partition ids; raise if they are too few."""
        yield from intake.updates(replies)
        asked, usable = len(self._sampled), len(intake.measured)
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
        assert self._previous is not None, "configure_train comes first"
        known = self._examples().known
        return pool_updates(
            updates,
            self.rule,
            self.weighting,
            self.defence,
            previous=self._previous,
            num_examples={i: known[i] for i in self._sampled if i in known},
            asked=len(self._sampled),
            generator=lambda i: randomness.generator(self.seed, "pooling", server_round, i),
        )

    def _examples(self) -> ExampleCounts:
        """Return what was known before the first round; who comes later is held to it."""
        if self._counts is None:
            assert self.federation is not None, "configure_train comes first"
            self._counts = ExampleCounts.of(self.federation, self.partition, self.max_examples)
        return self._counts

    def _intake(self, server_round: int) -> Intake:
        assert self.federation is not None, "configure_train comes first"
        previous, examples = self._previous, self._examples()
        assert previous is not None

        def read(reply: Message, partition_id: int) -> ClientUpdate:
            return read_update(
                reply,
                partition_id,
                previous,
                manifest=self.manifest,
                num_examples=examples.known.get(partition_id),
                most_examples=examples.most,
            )

        return Intake(
            self._sampled,
            self.federation.partition_of,
            read=read,
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
            ConfigurationError: Something does not go together; nothing has been trained.
            RunError: A round has fewer usable updates than ``min_clients``, what is pooled is no
                posterior, or the engine has died.
        """
        initial = initial_posterior(initial_arrays, self.manifest)
        check_parts_go_with(initial, self.rule, self.weighting)
        arrays = initial_arrays
        result = Result(arrays=initial_arrays)
        config = train_config or ConfigRecord()
        self.join(grid)
        self._examples()  # refuses what does not fit before anybody trains
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
            finished = finished_round(
                server_round, arrays, metrics, evaluated, seconds, self._client_records
            )
            if self.on_round and self.on_round(finished):
                break
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


def _log_warning(text: str) -> None:
    log(WARNING, text)
