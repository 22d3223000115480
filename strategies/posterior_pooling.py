"""The Strategy of which each pooling rule has a subclass: Flower's hooks, in the order of calls.

Flower's own ``start``, its wrappers and mods use ``configure_train`` and ``aggregate_train`` as
they use those of ``FedAvg``; the ``start`` here adds what they lack: replies pooled as they come,
nodes asked again, runs that go on. Between the two hooks somebody sends the messages and collects
the replies: ``start.run_rounds`` here, by ``FlowerClients.replies``, which asks again; in masked
rounds ``masked.add_up``; elsewhere Flower's own start. docs/internals.md has a picture of a round
with all functions in their order; docs/extending.md says which class and method another part has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from logging import INFO
from typing import TYPE_CHECKING, ClassVar

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from bfl import errors
from bfl.aggregation.pooling import PoolingRule
from bfl.engine.flower import log
from bfl.federation import wire
from strategies.method import ClientOptions, GivenParts, Method, RunSupport
from strategies.round import TrainingRequest, pool_round, refine_round, round_request
from strategies.server_state import Round, ServerState

if TYPE_CHECKING:
    from bfl.closing.base import Known
    from strategies.flower_clients import FlowerClients


@dataclass(kw_only=True, eq=False, repr=False)
class PosteriorPooling(GivenParts, Strategy):
    """Pool clients' posteriors with any rule and any weighting, and any parts besides them.

    Clients are sampled by (seed, round) and pooled in the order of their partition ids, whatever
    their node ids and the order in which they finish, so that one seed gives one result. Nodes are
    asked for their partition ids where there is a configuration, a partition, a part or a masked
    exchange; without, clients are numbered by the order of their node ids.

    What a round is made of is given as an object or by its name; ``bfl list`` prints the names.

    Args:
        rule: The pooling rule; a subclass has its own.
        weighting: How much each client counts.
        defence: What is done to the clients' posteriors before they are pooled.
        server_optimizer: What becomes of the step to the pool.
        sampling: Who takes part in a round; by default all.
        refinement: What the server does beyond pooling.
        sampler: The distribution that an ensemble's samples are from.
        broadcast: What of the global posterior clients are sent.
        exchange: How clients' updates reach the pool.
        parts: Parts with a half on the server and one on clients, such as SCAFFOLD.
        scale_floor: The least standard deviation of a pooled posterior; 0: none.
        client_options: How many clients there are, what they are sent, and how long they are
            waited for.
        run: What an application around the Strategy lends it, such as the network's manifest and
            the server's own data, and does with its rounds and warnings.

    Attributes:
        method: The parts, resolved.
        closed: What the closing has found, once ``start`` has ended; None for no closing.
        clients: The clients of the federation; None until it has begun.
        state: Where it stands after the last round that is over, once it has begun.
        finished: The last round that is over, if any.

    Source: Fischer et al. (2024), Algorithm 1.
    """

    rule_class: ClassVar[type[PoolingRule] | None] = None
    default_timeout: ClassVar[float] = 3600.0  # as Flower's

    seed: int = 0
    client_options: ClientOptions = field(default_factory=ClientOptions)
    run: RunSupport = field(default_factory=RunSupport)

    def __post_init__(self) -> None:
        given = {part.name: getattr(self, part.name) for part in fields(GivenParts)}
        del given["rule"]
        lent = ("predictive", "closing", "pool_noise")
        given |= {name: getattr(self.run, name) for name in lent}
        self.method = Method.of_parts(pooling=self._rule(), **given)
        self.closed: Known | None = None
        self.clients: FlowerClients | None = None
        self.state: ServerState
        self.finished: Round
        self.request: TrainingRequest | None = None
        self.last_begun = 0

    def _rule(self) -> PoolingRule | str:
        own = self.rule_class
        if self.rule is None:
            if own is None:
                raise TypeError("PosteriorPooling needs a rule; its named subclasses have theirs")
            return own(**{name: getattr(self, name) for name in own.model_fields})
        if own and not isinstance(self.rule, own):
            raise TypeError(
                f"{type(self).__name__} is given rule {self.rule!r}; PosteriorPooling takes any"
            )
        return self.rule

    def summary(self) -> None:
        """Log what the strategy is."""
        for name in ("pooling", "weighting", "sampling", "server_optimizer", "refinement"):
            kind = name.replace("_", " ").capitalize()
            log(INFO, "\t├──> %s: %s", kind, getattr(self.method, name).name)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of a round to the clients that take part in it.

        Args:
            server_round: The round; after the first it is a later one than the last.
            arrays: ``mean`` (D,), ``variance`` (D,) and ``point`` (P,): the global posterior.
            config: Values for the clients, besides those of the task.
        """
        if self.method.exchange.secure_sums:
            raise errors.ConfigurationError(
                f"exchange '{self.method.exchange.name}' takes several messages a round, which "
                "Flower's own start and its wrappers do not send; call this Strategy's start"
            )
        clients, request = self.begin_round(server_round, arrays, config, grid)
        return clients.messages(request)

    def begin_round(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> tuple[FlowerClients, TrainingRequest]:
        """Begin a round with some arrays, of a new federation if it is no later one of the last."""
        clients = self.clients
        if clients is None or clients.grid is not grid or server_round <= self.last_begun:
            from strategies.start import begin

            clients, self.state = begin(self, grid, arrays, self.default_timeout, server_round)
            self.clients = clients
        # A wrapper of Flower's may have changed the arrays since the last round, or left one out.
        name = f"arrays of round {server_round}"
        posterior = wire.read_posterior(arrays, self.run.manifest, name)
        state = replace(self.state, server_round=server_round - 1, posterior=posterior)
        self.request = request = round_request(self.method, state, self.seed)
        self.last_begun, clients.more = server_round, config
        return clients, request

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """Return the global posterior after a round, and what was measured in it.

        The replies may be in any order, while others may still be coming.

        Raises:
            RunError: Fewer clients than ``min_clients`` have sent a usable update, or what is
                pooled is no posterior, or no such round has begun.
        """
        request, clients, method = self.request, self.clients, self.method
        if request is None or clients is None or request.server_round != server_round:
            raise errors.RunError(
                f"round {server_round} has not begun: configure_train comes first"
            )
        manifest, server = self.run.manifest, self.run.server
        try:
            if method.exchange.secure_sums:  # from the start here alone
                from strategies.masked import pool_masked_round

                finished = pool_masked_round(request, clients, manifest)
            else:
                # ``FlowerClients`` reads and checks updates, in the order of partition ids.
                finished = pool_round(
                    request,
                    clients.updates(request, replies),
                    seed=self.seed,
                    num_examples=clients.num_examples,
                    manifest=manifest,
                    server=server,
                )
        except errors.PosteriorError as error:
            raise errors.RunError(f"{request.name}, pooling: {error}") from error
        finished = clients.add_counts(request, finished)
        if method.refinement.active or method.predictive.active:
            finished = refine_round(
                request,
                finished,
                seed=self.seed,
                manifest=manifest,
                server=server,
                configuration=self.client_options.configuration,
            )
        self.state, self.finished, self.request = finished.state, finished, None
        return wire.posterior_to_arrays(finished.posterior), MetricRecord(dict(finished.metrics))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return nothing: what clients measure, they send with their updates."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return None: nobody is asked to evaluate."""
        return None

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = default_timeout,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
        should_stop: Callable[[int, Result], bool] | None = None,
    ) -> Result:
        """Run the rounds and return Flower's result; the arguments are Flower's.

        ``timeout`` is how long a round waits without hearing from any client before it gives up
        on those that have not replied.
        """
        from strategies import start

        return start.run_rounds(
            self,
            grid,
            initial_arrays,
            num_rounds,
            timeout,
            train_config or ConfigRecord(),
            evaluate_fn,
            should_stop,
        )
