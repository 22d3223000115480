"""The Strategy of which each pooling rule has a subclass: Flower's two halves, and rounds of them.

``configure_train`` makes the messages of a round, ``aggregate_train`` pools the replies. Flower's
own ``start``, its wrappers and mods use the two as they use those of ``FedAvg``; the ``start`` here
adds what they lack: replies pooled as they come, nodes asked again, runs that go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from logging import INFO, WARNING
from typing import ClassVar

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from bfl.aggregation.defences import Defence
from bfl.aggregation.pooling import PoolingRule
from bfl.aggregation.refinements import Refinement
from bfl.aggregation.samplers import Sampler
from bfl.aggregation.server import Server
from bfl.aggregation.server_optimizers import ServerOptimizer
from bfl.aggregation.weightings import Weighting
from bfl.closing import Closing
from bfl.closing.base import Known
from bfl.configuration import Configuration
from bfl.engine.flower import log
from bfl.errors import ConfigurationError, RunError
from bfl.evaluation.predictives import Predictive
from bfl.federation.broadcasts import Broadcast
from bfl.federation.exchanges import Exchange
from bfl.federation.parts import TwoSidedPart
from bfl.federation.sampling import Sampling
from bfl.federation.wire import Positions, initial_posterior, posterior_to_arrays
from bfl.learning.example_privacy import SumsNoise
from bfl.learning.networks.parametrizations import Parametrization
from bfl.posteriors import Manifest
from bfl.posteriors.posterior import SCALE_FLOOR
from strategies.flower_clients import FlowerClients
from strategies.masked.round import pool_masked_round
from strategies.messaging import answered
from strategies.method import Method
from strategies.privacy import PoolNoise
from strategies.request import TrainingRequest, round_request
from strategies.round import pool_round, refine_round
from strategies.run_support import Round, RunSupport, Warnings
from strategies.server_state import PooledRound, ServerState, UnfinishedRounds
from strategies.start import begin, close_federation, run_rounds

__all__ = ["PosteriorPooling", "Round", "RunSupport"]

TIMEOUT = 3600.0
"""Seconds that Flower's ``start`` waits for replies unless it is told otherwise."""


def _log_warning(text: str) -> None:
    log(WARNING, text)


@dataclass(kw_only=True, eq=False, repr=False)
class PosteriorPooling(Strategy):
    """Pool clients' posteriors with any rule and any weighting, and any parts besides them.

    Clients are sampled by (seed, round) and pooled in the order of their partition ids, whatever
    their node ids and the order in which they finish, so that one seed gives one result. Nodes are
    asked for their partition ids where there is a configuration, a partition, a part or a masked
    exchange; without, clients are numbered by the order of their node ids.

    Each part is given by itself or by its name; ``bfl list`` prints the names.

    Args:
        rule: The pooling rule; a subclass has its own.
        weighting: How much each client counts.
        defence: What is done to the clients' posteriors before they are pooled.
        server_optimizer: What becomes of the step to the pool.
        sampling: Who takes part in a round; by default all.
        refinement: What the server does beyond pooling.
        predictive: What predicts besides the posterior.
        sampler: The distribution that an ensemble's samples are from.
        broadcast: What of the global posterior clients are sent.
        exchange: How clients' updates reach the pool.
        parts: Parts with a half on either side, such as SCAFFOLD.
        closing: What clients add up over their data after the last round of the ``start`` here.
        sums_noise: Noise that clients add to the closing's sums, for differential privacy.
        pool_noise: Noise on the pool, for differential privacy (``strategies.privacy``).
        scale_floor: The least standard deviation of a pooled posterior; 0: none.
        fraction_evaluate: The share of the clients that evaluate the posterior after a round, with
            their ``@app.evaluate``; 0: none.
        seed: The run's seed.
        clients: The number of clients; 0: as many as there are SuperNodes.
        min_clients: How many of the clients asked have to send a usable posterior: below 1 a share
            of them, from 1 a number.
        round_retries: How often clients that fail are asked again when there are fewer.
        node_timeout: Seconds to wait for all nodes before the first round.
        max_examples: The most examples that a client may claim to hold of its own.
        manifest: The parameters of the network, whose minima updates and pooled posteriors are held
            to, and whose moving statistics no server optimizer moves; None where the server does
            not know them.
        server: The server's own data and network, for a refinement or a weighting that needs them.
        configuration: The configuration that clients of this package are sent a part of, or a JSON
            object of flat keys.
        num_classes: The number of classes, for the same.
        partition: The examples of each client by partition id, for the same; None where nodes have
            their own, and ``[None] * clients`` where those say which partition is theirs.
        on_round: Called after each round of the ``start`` here; if it returns True, no other round
            follows.
        on_warning: Called with what goes wrong with clients; by default it is logged.
        run: What an application around the Strategy lends it.

    Attributes:
        method: The parts, resolved.
        closed: What the closing has found, once ``start`` has ended; None for no closing.
        state: Where the federation stands, once it has begun.
        participants: Its clients.
        request: The round in progress; None between rounds.
        pooled: What the last round has led to, or what an interrupted server has left of this one.
        implausible: Why updates of this round are refused with which it has been pooled before.

    Raises:
        TypeError: There is no rule, or a subclass is given another one than its own.
        ConfigurationError: There is no part of a name.

    Source: Fischer et al. (2024), Algorithm 1.
    """

    rule_class: ClassVar[type[PoolingRule] | None] = None

    state: ServerState = field(init=False)
    participants: FlowerClients = field(init=False)
    warnings: Warnings = field(init=False)
    unfinished: UnfinishedRounds | None = field(init=False)
    parametrization: Parametrization = field(init=False)

    rule: PoolingRule | str | None = None
    weighting: Weighting | str = "train-size"
    defence: Defence | str = "none"
    server_optimizer: ServerOptimizer | str = "none"
    sampling: Sampling | str = "random"
    refinement: Refinement | str = "none"
    predictive: Predictive | str = "posterior"
    sampler: Sampler | str = "gaussian"
    broadcast: Broadcast | str = "posterior"
    exchange: Exchange | str = "direct"
    parts: Sequence[TwoSidedPart] = ()
    closing: Sequence[Closing | str] = ()
    sums_noise: SumsNoise | None = None
    pool_noise: PoolNoise | None = None
    scale_floor: float = SCALE_FLOOR
    fraction_evaluate: float = 0.0
    seed: int = 0
    clients: int = 0
    min_clients: float = 0.5
    round_retries: int = 2
    node_timeout: float = 300.0
    max_examples: int = 1_000_000
    manifest: Manifest | None = None
    server: Server | None = None
    configuration: Configuration | str = "{}"
    num_classes: int = 10
    partition: Sequence[Positions | None] | None = None
    on_round: Callable[[Round], bool | None] | None = None
    on_warning: Callable[[str], None] = _log_warning
    run: RunSupport = field(default_factory=RunSupport)

    def __post_init__(self) -> None:
        named = {part.name for part in fields(Method)} - {"pooling"}
        given = {name: getattr(self, name) for name in sorted(named)}
        self.method = Method.of_parts(pooling=self._rule(), **given)
        self.closed: Known | None = None
        self.pooled: PooledRound | None = None
        self.request: TrainingRequest | None = None
        self.implausible: dict[int, str] = {}
        self._begun: tuple[Grid, int] | None = None
        self._messages: Sequence[Message] = ()

    def _rule(self) -> PoolingRule | str:
        """Return the rule that was given, or the subclass's own with the settings given."""
        own = self.rule_class
        if own is None:
            if self.rule is None:
                raise TypeError("PosteriorPooling needs a rule; its named subclasses have theirs")
            return self.rule
        if self.rule is None:
            return own(**{name: getattr(self, name) for name in own.model_fields})
        if not isinstance(self.rule, own):
            raise TypeError(
                f"{type(self).__name__} is given rule {self.rule!r}; PosteriorPooling takes any"
            )
        return self.rule

    def summary(self) -> None:
        """Log what the strategy is."""
        log(INFO, "\t├──> Pooling rule: %s", self.method.pooling.name)
        log(INFO, "\t├──> Weighting: %s", self.method.weighting.name)
        log(INFO, "\t├──> Sampling: %s", self.method.sampling.name)
        log(INFO, "\t├──> Server optimizer: %s", self.method.server_optimizer.name)
        log(INFO, "\t└──> Refinement: %s", self.method.refinement.name)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of a round to the clients that take part in it.

        Args:
            server_round: The round; after the first it is a later one than the last.
            arrays: ``mean`` (D,), ``variance`` (D,) and ``point`` (P,): the global posterior.
            config: Values for the clients, besides those of the task.
            grid: Flower's grid.

        Raises:
            ConfigurationError: Something does not go together, or the arrays are no posterior.
            RunError: Nodes are missing.
        """
        if self.method.exchange.secure_sums:
            raise ConfigurationError(
                f"exchange '{self.method.exchange.name}' takes several messages a round, which "
                "Flower's own start and its wrappers do not send; call this Strategy's start"
            )
        request = self.begin_round(server_round, arrays, config, grid)
        if self.pooled:  # an interrupted server has left it
            return []
        self._messages = self.participants.messages(request)
        return self._messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Return the global posterior after a round, and what was measured in it.

        Args:
            server_round: The round that ``configure_train`` has made the messages of.
            replies: Its replies, in any order, while others may still be coming.

        Raises:
            RunError: Fewer clients than ``min_clients`` have sent a usable update, or what is
                pooled is no posterior, or no such round has begun.
        """
        request = self.request
        if request is None or request.server_round != server_round:
            raise RunError(f"round {server_round} has not begun: configure_train comes first")
        clients = self.participants
        keeps = self.unfinished if self.method.refinement.keeps_pooled_round else None
        pooled = self.pooled
        if pooled is None:
            if secure_sums := self.method.exchange.secure_sums:
                pooled = pool_masked_round(request, secure_sums, clients, self.manifest)
            else:
                pooled = pool_round(
                    request,
                    clients.updates(request, answered(replies, self._messages)),
                    seed=self.seed,
                    num_examples=clients.num_examples,
                    manifest=self.manifest,
                    server=self.server,
                )
            pooled = clients.counted(request, pooled)
            if keeps:
                keeps.save(request.state, pooled)
        try:
            pooled = refine_round(
                request,
                pooled,
                seed=self.seed,
                manifest=self.manifest,
                server=self.server,
                parametrization=self.parametrization,
            )
        except RunError:
            if keeps:  # a resume would meet the same: its clients train again
                keeps.clear()
            raise
        self.state, self.pooled = pooled.state, replace(pooled, models=None)
        self.request, self._messages = None, ()
        self.warnings.of_weights(server_round, self.method.weighting.name, pooled)
        return posterior_to_arrays(pooled.state.posterior), MetricRecord(dict(pooled.metrics))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return messages to ``fraction_evaluate`` of the clients, at least one unless it is 0."""
        if not self.fraction_evaluate or self._begun is None:
            return []
        clients, share = self.participants, self.fraction_evaluate
        clients.more = config
        return clients.evaluation_messages(server_round, arrays, share, self.seed)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return the clients' metrics, averaged with their numbers of examples; None for none."""
        if self._begun is None:
            return None
        means = self.participants.evaluation_means(server_round, replies)
        return MetricRecord(dict(means)) if means else None

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = TIMEOUT,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
        should_stop: Callable[[int, Result], bool] | None = None,
    ) -> Result:
        """Run the rounds and return Flower's result; the arguments are Flower's.

        ``timeout`` is how long a round waits without hearing from any client before it gives up
        on those that have not replied.

        Raises:
            ConfigurationError: Something does not go together; nothing has been trained.
            RunError: A round has fewer usable updates than ``min_clients``, what is pooled is no
                posterior, or the engine has died.
        """
        begin(self, grid, initial_arrays, timeout, num_rounds)
        self._begun = (grid, self.state.server_round)
        result = run_rounds(
            self,
            grid,
            Result(arrays=initial_arrays),
            num_rounds,
            timeout,
            train_config or ConfigRecord(),
            evaluate_config or ConfigRecord(),
            evaluate_fn,
            should_stop,
        )
        self.closed = close_federation(self)
        return result

    def begin_round(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> TrainingRequest:
        """Begin a round with some arrays, of a new federation if it is no later one of the last."""
        last_grid, last_round = self._begun or (None, 0)
        if last_grid is not grid or server_round + bool(self.implausible) <= last_round:
            begin(self, grid, arrays, TIMEOUT, server_round)
            if self.run.state and self.run.state.server_round != server_round - 1:
                raise ConfigurationError(
                    f"this Strategy goes on after round {self.run.state.server_round} and is asked "
                    f"for round {server_round}; call its own start"
                )
        # A wrapper may have changed the arrays, or left out a round.
        posterior = initial_posterior(arrays, self.manifest)
        state = replace(self.state, server_round=server_round - 1, posterior=posterior)
        request = round_request(self.method, state, self.seed, self.implausible)
        keeps = self.unfinished if self.method.refinement.keeps_pooled_round else None
        self.pooled = keeps.after(state, self.manifest) if keeps else None
        self.request, self._begun = request, (grid, server_round)
        self.participants.more = config
        return request
