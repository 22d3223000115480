"""The Strategy that runs rounds of any method: Flower's records at its edge, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from bfl.aggregation.defences import Defence, defences
from bfl.aggregation.pooling import PoolingRule, pooling_rules
from bfl.aggregation.refinements import Refinement, refinements
from bfl.aggregation.samplers import Sampler, samplers
from bfl.aggregation.server import Server
from bfl.aggregation.server_optimizers import ServerOptimizer, server_optimizers
from bfl.aggregation.weightings import Weighting, weightings
from bfl.configuration import Configuration
from bfl.engine.flower import log
from bfl.evaluation.predictives import Predictive, predictives
from bfl.federation.broadcasts import Broadcast, broadcasts
from bfl.federation.exchanges import Exchange, exchanges
from bfl.federation.parts import Part
from bfl.federation.sampling import Sampling, samplings
from bfl.federation.wire import Positions, posterior_to_arrays
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.floor import SCALE_FLOOR
from bfl.registry import Component, Registry
from strategies.checks import (
    check_exchange,
    check_memory,
    check_method,
    initial_posterior,
    known_configuration,
    text_for_clients,
)
from strategies.client_warnings import Warnings
from strategies.federation import Federation, discover
from strategies.flower_clients import FlowerClients, Patience, TaskTemplate
from strategies.method import Method
from strategies.pooled_round import PooledRounds
from strategies.privacy import PoolNoise
from strategies.round import federated_round
from strategies.server_state import ServerState

__all__ = ["PosteriorPooling", "Round"]

C = TypeVar("C", bound=Component)

UNFINISHED = "pooled-round"
"""The folder in a run's, with the round that is pooled and not yet refined."""

ROUNDS_ARE_WHOLE = (
    "this Strategy runs whole rounds by itself (strategies.round.federated_round), so that what it "
    "sends and what it pools cannot be taken apart; call start, or add a part (docs/extending.md)"
)


@dataclass(frozen=True)
class Round:
    """What one round has given, for whoever looks on.

    Attributes:
        state: Where the federation stands after it, with the global posterior.
        metrics: What clients and pooling have measured, and what was evaluated.
        seconds: How long training and pooling took.
        clients: One entry for each client pooled, see ``strategies.tally``.
    """

    state: ServerState
    metrics: dict[str, float]
    seconds: float
    clients: Sequence[Mapping[str, Any]] = ()

    @property
    def number(self) -> int:
        """The round, from 1."""
        return self.state.server_round

    @property
    def posterior(self) -> Posterior:
        """The global posterior after the round."""
        return self.state.posterior


class PosteriorPooling(Strategy):
    """Pools clients' posteriors with any rule and any weighting, and any parts beside them.

    Clients are sampled by (seed, round) and pooled in the order of their partition ids, whatever
    their node ids and the order in which they finish, so that one seed gives one result.

    Args:
        rule: The pooling rule, by its name or itself. The named subclasses
            (``strategies.Conflation``, ...) make their own from keyword arguments.
        weighting: What the clients' weights are, likewise.
        defence: What is done to the clients' posteriors before, likewise; by default nothing.
        sampling: Who takes part in a round, likewise; by default all.
        server_optimizer: What becomes of the step to the pool, likewise; by default nothing.
        broadcast: What of the global posterior clients are sent, likewise; by default all.
        exchange: How clients' updates reach the pool, likewise; by default as they are.
        refinement: What the server does beyond pooling, likewise; by default nothing.
        sampler: The distribution that an ensemble's samples are from, likewise.
        predictive: What predicts beside the posterior, likewise; by default nothing.
        pool_noise: What is done to the pool, of (pooled, previous, counts); by default nothing.
        server: The server's own data and network, for a refinement that needs them.
        judge: Judges the predictive's models after a round, given the state; what it returns stands
            in the round's metrics.
        parts: Parts of the method with a half on either side.
        manifest: The parameters of the network, whose minima updates and pooled posteriors are held
            to; None where the server does not know them.
        configuration: The run's configuration, of which clients are sent what they read; or what
            they are sent, as a JSON object of flat keys.
        num_classes: The number of classes, sent to the clients.
        partition: The examples of each client, by partition id; None where nodes have their own.
        test_partition: The test examples of each client, likewise; None where clients do not judge.
        run_folder: The run's folder, for clients that keep a state in a simulation.
        run_key: The run's own word, by which nodes file what they keep.
        clients: The number of clients; 0: as many as there are SuperNodes.
        max_examples: The most examples that a client may claim to hold of its own.
        seed: The run's seed.
        node_timeout: Seconds to wait for all nodes before the first round.
        scale_floor: The least standard deviation of a pooled posterior; 0: none.
        min_clients: How many of the clients asked have to send a usable posterior: below 1 a share
            of them, from 1 a number.
        round_retries: How often clients that fail are asked again when there are fewer.
        federation: The nodes, where they have been waited for already.
        state: Where to go on; None: before the first round.
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
        sampling: Sampling | str = "random",
        server_optimizer: ServerOptimizer | str = "none",
        broadcast: Broadcast | str = "posterior",
        exchange: Exchange | str = "direct",
        refinement: Refinement | str = "none",
        sampler: Sampler | str = "gaussian",
        predictive: Predictive | str = "posterior",
        pool_noise: PoolNoise | None = None,
        server: Server | None = None,
        judge: Callable[[ServerState], Mapping[str, float]] | None = None,
        parts: Sequence[Part] = (),
        manifest: Manifest | None = None,
        configuration: Configuration | str = "{}",
        num_classes: int = 10,
        partition: Sequence[Positions | None] | None = None,
        test_partition: Sequence[Positions | None] | None = None,
        run_folder: str = "",
        run_key: str = "",
        clients: int = 0,
        max_examples: int = 1_000_000,
        seed: int = 0,
        node_timeout: float = 300.0,
        scale_floor: float = SCALE_FLOOR,
        min_clients: float = 0.5,
        round_retries: int = 2,
        federation: Federation | None = None,
        state: ServerState | None = None,
        on_round: Callable[[Round], bool | None] | None = None,
        on_warning: Callable[[str], None] | None = None,
        **rule_settings: Any,
    ) -> None:
        self.method = Method(
            sampling=_part(samplings, sampling),
            pooling=self._made(rule, rule_settings),
            weighting=_part(weightings, weighting),
            defence=_part(defences, defence),
            server_optimizer=_part(server_optimizers, server_optimizer),
            broadcast=_part(broadcasts, broadcast),
            exchange=_part(exchanges, exchange),
            scale_floor=scale_floor,
            refinement=_part(refinements, refinement),
            sampler=_part(samplers, sampler),
            predictive=_part(predictives, predictive),
            pool_noise=pool_noise,
            parts=tuple(parts),
        )
        self.server = server
        self.judge = judge
        self.manifest = manifest
        self.configuration = configuration
        self.num_classes = num_classes
        self.partition = partition
        self.test_partition = test_partition
        self.run_folder = run_folder
        self.run_key = run_key
        self.clients = clients
        self.max_examples = max_examples
        self.seed = seed
        self.node_timeout = node_timeout
        self.min_clients = min_clients
        self.round_retries = round_retries
        self.federation = federation
        self.state = state
        self.on_round = on_round
        self.on_warning = on_warning

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
        log(INFO, "\t├──> Pooling rule: %s", self.method.pooling.name)
        log(INFO, "\t├──> Weighting: %s", self.method.weighting.name)
        log(INFO, "\t├──> Sampling: %s", self.method.sampling.name)
        log(INFO, "\t├──> Server optimizer: %s", self.method.server_optimizer.name)
        log(INFO, "\t└──> Refinement: %s", self.method.refinement.name)

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
        method = self.method
        initial = initial_posterior(initial_arrays, self.manifest)
        known = known_configuration(self.configuration)
        check_method(method, initial, known, self.server, self.round_retries)
        method.declared(initial)  # refuses what does not fit before anybody trains
        federation = self.federation or discover(grid, self.clients, self.node_timeout)
        asked = method.sampling.sample(self.seed, 1, federation.size)
        check_memory(method, initial, len(asked))
        warnings = Warnings(self.on_warning or _log_warning)
        clients = self._clients(
            grid, federation, timeout, train_config or ConfigRecord(), warnings.of_client
        )
        fewest = clients.patience.needed(len(asked))
        check_exchange(method, initial, clients.num_examples, asked, fewest)
        state = self.state or ServerState.first(
            initial, federation.size, method.begin(initial, federation.size)
        )
        result, unfinished = Result(arrays=initial_arrays), self._unfinished()
        while state.server_round < num_rounds:
            started = time.perf_counter()
            state, report = federated_round(
                method,
                state,
                clients,
                self.seed,
                self.manifest,
                server=self.server,
                unfinished=unfinished,
            )
            seconds = time.perf_counter() - started
            number, arrays = state.server_round, posterior_to_arrays(state.posterior)
            warnings.of_weights(number, method.weighting.name, report)
            result.arrays = arrays
            result.train_metrics_clientapp[number] = MetricRecord(dict(report.metrics))
            evaluated = evaluate_fn(number, arrays) if evaluate_fn else None
            if evaluated is not None:
                result.evaluate_metrics_serverapp[number] = evaluated
            judged = self.judge(state) if self.judge else {}
            metrics: dict[str, Any] = {**report.metrics, **(evaluated or {}), **judged}
            finished = Round(state, metrics, seconds, report.clients)
            if self.on_round and self.on_round(finished):
                break
        if unfinished:
            unfinished.clear()
        return result

    def _unfinished(self) -> PooledRounds | None:
        """Return where a pooled round is kept until it is refined, if the run has a folder."""
        if not self.run_folder:
            return None
        # The run's key stands for a configuration that a resume has compared already, but for keys
        # that change no result.
        known = self.run_key or text_for_clients(self.configuration)
        return PooledRounds(
            Path(self.run_folder) / UNFINISHED, f"{known} {self.seed} {self.method!r}"
        )

    def _clients(
        self,
        grid: Grid,
        federation: Federation,
        silence: float,
        more: ConfigRecord,
        warn: Callable[[int, int, str], None],
    ) -> FlowerClients:
        template = TaskTemplate(
            configuration=text_for_clients(self.configuration),
            num_classes=self.num_classes,
            partition=self.partition,
            test_partition=self.test_partition,
            run_folder=self.run_folder if federation.simulated else "",
            run_key=self.run_key,
            more=more,
        )
        return FlowerClients(
            grid,
            federation,
            template,
            Patience(silence, self.min_clients, self.round_retries),
            max_examples=self.max_examples,
            manifest=self.manifest,
            warn=warn,
        )

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Refuse: rounds are whole here.

        Raises:
            TypeError: Always.
        """
        raise TypeError(ROUNDS_ARE_WHOLE)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Refuse: rounds are whole here.

        Raises:
            TypeError: Always.
        """
        raise TypeError(ROUNDS_ARE_WHOLE)

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


def _part(registry: Registry[C], given: C | str) -> C:
    """Return a part that is given by itself or by its name."""
    return registry.create(given) if isinstance(given, str) else given


def _log_warning(text: str) -> None:
    log(WARNING, text)
