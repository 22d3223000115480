"""The Strategy that runs rounds of any method: Flower's records at its edge, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from logging import INFO, WARNING
from pathlib import Path
from typing import Any, ClassVar

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from bfl.aggregation.pooling import PoolingRule
from bfl.aggregation.server import Server
from bfl.closing.base import Known
from bfl.configuration import Configuration
from bfl.engine.flower import log
from bfl.federation.wire import Positions, posterior_to_arrays
from bfl.learning.networks.parametrizations import SOFTPLUS
from bfl.posteriors import Manifest, Posterior
from strategies.checks import (
    check_exchange,
    check_memory,
    check_method,
    initial_posterior,
    known_configuration,
    text_for_clients,
)
from strategies.closing import CLOSING, close
from strategies.federation import Federation, discover
from strategies.flower_clients import FlowerClients, Patience, TaskTemplate
from strategies.method import Method
from strategies.pooled_round import PooledRounds
from strategies.round import federated_round
from strategies.server_state import ServerState
from strategies.warnings import Warnings, unknown_moving_statistics

__all__ = ["PosteriorPooling", "Round"]

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
        method: The parts that its rounds are made of. Or they are keyword arguments, each a part
            or its name, and the settings of the rule with them: see ``Method.of_parts``.
        server: The server's own data and network, for a refinement that needs them.
        judge: Judges the predictive's models after a round, given the state; what it returns stands
            in the round's metrics.
        manifest: The parameters of the network, whose minima updates and pooled posteriors are held
            to, and whose moving statistics no server optimizer moves; None where the server does
            not know them.
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
        min_clients: How many of the clients asked have to send a usable posterior: below 1 a share
            of them, from 1 a number.
        round_retries: How often clients that fail are asked again when there are fewer.
        federation: The nodes, where they have been waited for already.
        state: Where to go on; None: before the first round.
        on_round: Called after each round; if it returns True, no other round follows.
        on_warning: Called with what goes wrong with clients; by default it is logged.
        on_sums: Called with the number of each round of the closing's sums, and its numbers.

    Attributes:
        closed: What the closing has found, once ``start`` has ended; None for no closing.

    Raises:
        TypeError: Both a method and parts are given, or a method with another rule than that of a
            named subclass; or there is no rule.
        ConfigurationError: There is no part of a name.

    Source: Fischer et al. (2024), Algorithm 1.
    """

    rule_class: ClassVar[type[PoolingRule] | None] = None

    def __init__(
        self,
        *,
        method: Method | None = None,
        server: Server | None = None,
        judge: Callable[[ServerState], Mapping[str, float]] | None = None,
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
        min_clients: float = 0.5,
        round_retries: int = 2,
        federation: Federation | None = None,
        state: ServerState | None = None,
        on_round: Callable[[Round], bool | None] | None = None,
        on_warning: Callable[[str], None] | None = None,
        on_sums: Callable[[int, Mapping[str, float]], None] = lambda number, numbers: None,
        **parts: Any,
    ) -> None:
        self.method = self._method(method, parts)
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
        self.on_sums = on_sums
        self.closed: Known | None = None

    def _method(self, method: Method | None, parts: Mapping[str, Any]) -> Method:
        """Return the method that was given, or the one of the parts that were."""
        if method is None:
            return Method.of_parts(self.rule_class, **parts)
        if parts:
            raise TypeError(f"a method is given, and beside it {', '.join(parts)}")
        if self.rule_class and not isinstance(method.pooling, self.rule_class):
            raise TypeError(
                f"{type(self).__name__} is given a method that pools by '{method.pooling.name}'; "
                "PosteriorPooling takes any"
            )
        return method

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
        check_method(method, initial, known, self.server, self.round_retries, self.manifest)
        method.declared(initial)  # refuses what does not fit before anybody trains
        federation = self.federation or discover(grid, self.clients, self.node_timeout)
        asked = self._asked(federation.size, num_rounds)
        check_memory(method, initial, asked, kept=bool(self.run_folder))
        say = self.on_warning or _log_warning
        for text in unknown_moving_statistics(method.server_optimizer, initial, self.manifest):
            say(text)
        warnings = Warnings(say)
        clients = self._clients(
            grid, federation, timeout, train_config or ConfigRecord(), warnings.of_client
        )
        check_exchange(method, known, initial, clients.num_examples, asked, clients.patience.needed)
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
                parametrization=known.inference.parametrization if known else SOFTPLUS,
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
            warnings.of_numbers(number, metrics)
            finished = Round(state, metrics, seconds, report.clients)
            if self.on_round and self.on_round(finished):
                break
        if unfinished:
            unfinished.clear()
        self.closed = self._closed(state, clients)
        return result

    def _closed(self, state: ServerState, clients: FlowerClients) -> Known | None:
        """Return what the closing finds after the last round."""
        folder = self._folder(CLOSING)
        return close(self.method, state, clients, self.manifest, folder, self.on_sums)

    def _folder(self, name: str) -> Path | None:
        """Return a folder in the run's, if the run has one."""
        return Path(self.run_folder) / name if self.run_folder else None

    def _unfinished(self) -> PooledRounds | None:
        """Return where a pooled round is kept until it is refined, if the run has a folder."""
        folder = self._folder(UNFINISHED)
        if folder is None:
            return None
        # The run's key stands for a configuration that a resume has compared already, but for keys
        # that change no result.
        known = self.run_key or text_for_clients(self.configuration)
        return PooledRounds(folder, f"{known} {self.seed} {self.method!r}")

    def _asked(self, size: int, num_rounds: int) -> dict[int, list[int]]:
        """Return who of so many clients is asked, by the round's number.

        Of every round where weights decide on what is refused, and else of the first, which stands
        for all.
        """
        sums_alone = self.method.exchange.secure_sums is not None
        last = max(num_rounds, 1) if sums_alone else 1
        return {
            number: self.method.sampling.sample(self.seed, number, size)
            for number in range(1, last + 1)
        }

    def _clients(
        self,
        grid: Grid,
        federation: Federation,
        silence: float,
        more: ConfigRecord,
        warn: Callable[[int, int, str], None],
    ) -> FlowerClients:
        known = known_configuration(self.configuration)
        template = TaskTemplate(
            configuration=text_for_clients(self.configuration),
            configuration_without_paths=text_for_clients(self.configuration, paths=False),
            num_classes=self.num_classes,
            partition=self.partition,
            test_partition=self.test_partition,
            run_folder=self.run_folder if federation.simulated else "",
            run_key=self.run_key,
            more=more,
            calibration_share=known.keys.calibration_share if known else 0.0,
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


def _log_warning(text: str) -> None:
    log(WARNING, text)
