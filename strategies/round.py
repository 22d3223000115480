"""One federated round in two halves: who is asked what, and what is made of the answers.

Everything here is plain posteriors, arrays and numbers. ``strategies.flower_clients`` has Flower's
records, who answers for whom and who is asked again. What only some methods do in a round stands in
``strategies.options``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from bfl.aggregation.pooling import DAMPING, Pooled
from bfl.aggregation.server import Server
from bfl.errors import PosteriorError, RunError
from bfl.federation.parts import Arrays, Counts, DeclaredArray
from bfl.federation.wire import TRAIN
from bfl.learning.networks.parametrizations import SOFTPLUS, Parametrization
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.posterior import with_scale_floor
from strategies.messaging import UsableReplies
from strategies.method import Method
from strategies.options import ServerOption
from strategies.pool_updates import RoundStatistics, believed_numbers, collect_updates
from strategies.server_state import PooledRound, ServerState, UnfinishedRounds
from strategies.updates import ClientUpdate, Unpack, of_vectors

if TYPE_CHECKING:
    from strategies.flower_clients import FlowerClients


Train = Callable[["TrainingRequest"], Iterator[ClientUpdate]]
"""Gives the usable updates of clients in order, and counts them and the others in the request."""

Collect = Callable[["OpenRound", "FlowerClients", Train], tuple[Pooled, RoundStatistics]]
"""Has the clients of a round train, and pools what they send."""


@dataclass
class TrainingRequest:
    """Request to the clients of a round.

    Attributes:
        server_round: The round, from 1.
        partition_ids: Which clients are asked, sorted.
        vectors: The names of those of its vectors that they are sent.
        last_pooled: By partition id, the last round in which a client's update was pooled; 0:
            none yet.
        damping: By partition id, by how much that round's change was damped.
        unpack: Makes posteriors of the vectors that come.
        broadcast: What they are sent beside the posterior.
        declared: What they have to send besides theirs.
        problems: Each says what is wrong with an update beyond its form; None if nothing is.
        expected: A posterior of the sizes and types that they send back; None: of those sent.
        usable: How many of their replies are usable so far, and how many are enough.
        implausible: What was wrong with updates with which the round has been pooled before, by
            partition id; these clients are not asked again.
        left_out: Why the round is made without a client that was asked, by partition id.
        suspicion: Whose values were furthest from the others', once all are there.
        called: The round, in messages for people.
    """

    server_round: int
    partition_ids: Sequence[int]
    posterior: Posterior
    vectors: Sequence[str]
    last_pooled: Mapping[int, int]
    damping: Mapping[int, float]
    broadcast: Arrays = field(default_factory=dict)
    declared: tuple[DeclaredArray, ...] = ()
    problems: list[Callable[[ClientUpdate], str | None]] = field(default_factory=list)
    expected: Posterior | None = None
    unpack: Unpack = of_vectors
    message_type: str = TRAIN
    usable: UsableReplies = field(default_factory=lambda: UsableReplies(1))
    implausible: Mapping[int, str] = field(default_factory=dict)
    left_out: dict[int, str] = field(default_factory=dict)
    suspicion: str = ""
    called: str = ""

    def __post_init__(self) -> None:
        self.called = self.called or f"round {self.server_round}"


def training_request(method: Method, state: ServerState, asked: Sequence[int]) -> TrainingRequest:
    """Return what some clients are asked in the round after a state.

    Args:
        method: The parts that the round is made of.
        asked: Which clients are asked, sorted.
    """
    return TrainingRequest(
        server_round=state.server_round + 1,
        partition_ids=asked,
        posterior=state.posterior,
        vectors=method.broadcast.vectors,
        last_pooled={i: int(state.last_pooled[i]) for i in asked},
        damping={i: float(state.damping[i]) for i in asked},
        problems=[lambda update: method.weighting.unreported(believed_numbers(update.metrics))],
    )


@dataclass(kw_only=True)
class OpenRound:
    """A round that has begun; options change it.

    Attributes:
        method: The parts that the round is made of.
        state: Where the federation stood before it.
        manifest: The parameters of the network, whose minima the pooled posterior is held to, and
            whose moving statistics the server optimizer leaves; None where the server does not know
            them.
        server: What the server can do by itself; None for a method that asks nothing of it.
        unfinished: Where a pooled round is kept until it is refined, if anywhere.
        parametrization: The clients' network's, which may compute with other variances than
            a posterior has.
        options: What the method does besides pooling.
        collect: Has clients train, and pools what they send.
        counts: How many clients there were, once they have been pooled.
        combined: What clients have sent besides their posteriors, summed or averaged.
        posterior: What the pool has become so far.
        changes: Entries of the next state that are not this one's.
        metrics: What clients and pooling have measured.
        taken_up: What the round has been pooled to by an interrupted server, so that nobody is
            asked again.
    """

    method: Method
    state: ServerState
    seed: int
    manifest: Manifest | None
    server: Server | None
    unfinished: UnfinishedRounds | None
    parametrization: Parametrization
    request: TrainingRequest
    options: Sequence[ServerOption]
    collect: Collect = collect_updates
    counts: Counts = field(init=False)
    combined: Arrays = field(default_factory=dict)
    posterior: Posterior = field(init=False)
    changes: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    taken_up: PooledRound | None = None


def begin_round(
    method: Method,
    state: ServerState,
    seed: int,
    *,
    manifest: Manifest | None = None,
    server: Server | None = None,
    unfinished: UnfinishedRounds | None = None,
    parametrization: Parametrization = SOFTPLUS,
) -> OpenRound:
    """Return the round after a state: which clients take part, and what they are asked.

    Clients are sampled by (seed, round), so that one seed gives one result. For the arguments see
    ``OpenRound``.

    Raises:
        RunError: What the parts would send has values that their declarations rule out.
    """
    asked = method.sampling.sample(seed, state.server_round + 1, state.num_clients)
    opened = OpenRound(
        method=method,
        state=state,
        seed=seed,
        manifest=manifest,
        server=server,
        unfinished=unfinished,
        parametrization=parametrization,
        request=training_request(method, state, asked),
        options=[option() for option in method.options],
    )
    for option in opened.options:
        option.begin(opened)
    return opened


def end_round(opened: OpenRound, clients: FlowerClients, train: Train | None = None) -> PooledRound:
    """Pool what the clients of a round send; return what it leads to.

    Clients are pooled in the order of their partition ids, whatever the order in which they finish.

    Args:
        train: Gives the updates of clients in place of ``clients.train``: those in replies that
            others have collected.

    Raises:
        RunError: Too few clients have sent a usable update, or what is pooled, or refined, is no
            posterior.

    Source: Fischer et al. (2024), Algorithm 1, for the round without options.
    """
    pooled = opened.taken_up or _pooled(opened, clients, train or clients.train)
    for option in opened.options:
        pooled = option.refine(opened, pooled)
    pooled.state.check(opened.manifest)
    return pooled


def _pooled(opened: OpenRound, clients: FlowerClients, train: Train) -> PooledRound:
    """Have clients train and pool what they send: a round up to what the server does alone."""
    request, state = opened.request, opened.state
    number = request.server_round
    try:
        pooled, statistics = opened.collect(opened, clients, train)
        if opened.manifest:
            opened.manifest.check(pooled.posterior)
    except PosteriorError as error:
        raise RunError(f"round {number}, pooling: {error}") from error
    who = statistics.partition_ids
    opened.counts = Counts(len(request.partition_ids), len(who), state.num_clients, number)
    opened.posterior = pooled.posterior
    opened.metrics = {**statistics.metrics(), **pooled.diagnostics}
    for option in opened.options:
        option.conclude(opened)
    floored = with_scale_floor(opened.posterior, opened.method.scale_floor)
    following = replace(
        state.with_pooled(who, number, pooled.diagnostics.get(DAMPING, 1.0)),
        server_round=number,
        posterior=floored.posterior,
        before_rounding=pooled.unrounded,
        predictive={},
        **opened.changes,
    )
    metrics = {**opened.metrics, **floored.diagnostics}
    return PooledRound(following, metrics, statistics.entries(pooled.weights))
