"""One federated round in two halves: who is asked what, and what is made of the answers.

Everything here is plain posteriors, arrays and numbers. What travels as Flower's records, who
answers for whom and who is asked again is behind ``Clients``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from bfl import randomness
from bfl.aggregation.client_models import ClientModels
from bfl.aggregation.pooling import CLIPPED, DAMPING, Pooled
from bfl.aggregation.precision_spread import PrecisionSpread
from bfl.aggregation.server import RoundContext, Server, ServerRound
from bfl.errors import NotFiniteError, PosteriorError, RunError
from bfl.federation.parts import Arrays, Counts
from bfl.learning.networks.parametrizations import SOFTPLUS, Parametrization
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.posterior import Floored, with_scale_floor
from strategies.method import Method
from strategies.pool_sums import ClientsSum, WantedSum, pool_sums, wanted_sum
from strategies.pool_updates import pool_updates
from strategies.round_statistics import PooledClient, RoundStatistics
from strategies.server_state import PooledRound, PooledRounds, ServerState
from strategies.training_request import (
    Combination,
    TrainingRequest,
    beyond_float32,
    training_request,
)
from strategies.updates import ClientUpdate


class Clients(Protocol):
    """The clients of a federation, whoever they are."""

    @property
    def size(self) -> int:
        """The number K of clients."""

    @property
    def num_examples(self) -> Mapping[int, int]:
        """Numbers of the clients' examples by partition id, as far as the server knows."""

    def train(
        self, request: TrainingRequest, on_refused: Callable[[int], None]
    ) -> Iterator[ClientUpdate]:
        """Have clients train; yield the usable updates in the order of partition ids.

        They come while others are still training.

        Args:
            request: What clients are asked.
            on_refused: Told the partition id of each client whose update is refused.

        Raises:
            RunError: They are too few.
        """

    def add_up(self, request: TrainingRequest, wanted: WantedSum) -> ClientsSum:
        """Have clients train, and return the sum of their statistics, which is all that is known.

        Raises:
            RunError: They are too few.
        """


@dataclass(frozen=True)
class RoundReport:
    """Report of a round besides the next state.

    Attributes:
        metrics: What clients and pooling have measured.
        clients: One entry for each client pooled, see ``strategies.pool_updates``.
    """

    metrics: dict[str, float]
    clients: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class OpenRound:
    """A round that has begun, and whose clients have not been pooled.

    Attributes:
        state: Where the federation stood before it.
        request: What its clients are asked.
        pooled: The round as an interrupted server has pooled it; then nobody is asked again.
    """

    state: ServerState
    request: TrainingRequest
    pooled: PooledRound | None = None


def begin_round(
    method: Method,
    state: ServerState,
    clients: int,
    seed: int,
    manifest: Manifest | None = None,
    unfinished: PooledRounds | None = None,
) -> OpenRound:
    """Return the round after a state: which clients take part, and what they are asked.

    Clients are sampled by (seed, round), so that one seed gives one result.

    Args:
        method: The parts that the round is made of.
        state: Where the federation stands.
        clients: The number K of clients.
        seed: The run's seed.
        manifest: The parameters of the network; None where the server does not know them.
        unfinished: Where a pooled round is kept until it is refined.

    Raises:
        RunError: What the parts would send has values that their declarations rule out.
    """
    asked = method.sampling.sample(seed, state.server_round + 1, clients)
    request = training_request(method, state, asked, clients)
    keeps = unfinished if method.refinement.keeps_pooled_round else None
    return OpenRound(state, request, keeps.after(state, manifest) if keeps else None)


def end_round(
    method: Method,
    opened: OpenRound,
    clients: Clients,
    seed: int,
    manifest: Manifest | None = None,
    *,
    server: Server | None = None,
    unfinished: PooledRounds | None = None,
    parametrization: Parametrization = SOFTPLUS,
) -> tuple[ServerState, RoundReport]:
    """Pool what the clients of a round send; return the state after it, and what it has given.

    Clients are pooled in the order of their partition ids, whatever the order in which they finish.

    Args:
        method: The parts that the round is made of.
        opened: The round.
        clients: Who trains.
        seed: The run's seed.
        manifest: The parameters of the network, whose minima the pooled posterior is held to, and
            whose moving statistics the server optimizer leaves; None where the server does not know
            them.
        server: What the server can do by itself; None for a method that asks nothing of it.
        unfinished: Where a pooled round is kept until it is refined. One that cannot be refined is
            not kept.
        parametrization: The clients' network's, which may compute with other variances than
            a posterior has.

    Raises:
        RunError: Too few clients have sent a usable update, or what is pooled, or refined, is no
            posterior.

    Source: Fischer et al. (2024), Algorithm 1, for the round that all parts but the pooling leave
    as it is.
    """
    keeps = unfinished if method.refinement.keeps_pooled_round else None
    pooled = opened.pooled
    if pooled is None:
        pooled = pooled_round(method, opened, clients, seed, manifest, server=server)
        if keeps:
            keeps.save(opened.state, pooled)
    used = parametrization.used_variance
    context = RoundContext(
        seed=seed,
        server_round=pooled.state.server_round,
        previous=opened.state.posterior,
        pooled=pooled.state.posterior,
        sampler=method.sampler,
        clients=pooled.models.computing_with(used) if pooled.models else None,
        server=server,
    )
    try:
        return _refined(method, context, pooled, manifest)
    except RunError:
        if keeps:  # a resume would meet the same: its clients train again
            keeps.clear()
        raise


def _refined(
    method: Method, context: RoundContext, pooled: PooledRound, manifest: Manifest | None
) -> tuple[ServerState, RoundReport]:
    """Return the state after a round that has been pooled, and what the round has given.

    Raises:
        RunError: It cannot be refined, or what it is refined to is no posterior.
    """
    try:
        refined = method.refinement.refine(context)
    except (NotFiniteError, PosteriorError) as error:
        raise RunError(
            f"round {context.server_round}, refinement '{method.refinement.name}': {error}; the "
            "clients' values, or the refinement's own steps, are too large for the network"
        ) from error
    kept = method.predictive.keep(context)
    following = replace(pooled.state, posterior=refined.posterior, predictive=kept)
    _check(following, manifest)
    return following, RoundReport({**pooled.metrics, **refined.metrics}, pooled.clients)


def pooled_round(
    method: Method,
    opened: OpenRound,
    clients: Clients,
    seed: int,
    manifest: Manifest | None = None,
    server: Server | None = None,
) -> PooledRound:
    """Have clients train and pool what they send: a round up to what the server does alone.

    The arguments and what is raised are those of ``end_round``.
    """
    state, request = opened.state, opened.request
    number, asked, previous = request.server_round, request.partition_ids, state.posterior
    combination = Combination(request.declared)
    seen = method.exchange.secure_sums is None
    spread = PrecisionSpread() if method.pooling.by_precision and seen else None
    kept: list[ClientUpdate] = []

    def add(update: ClientUpdate, weight: float) -> None:
        if method.needs_models:
            kept.append(update)
        combination.add(update.extras, weight)
        if spread:
            spread.add(update.posterior, weight)

    try:
        pooled, tally = _pooled(method, request, clients, state, seed, add, server)
        if manifest:
            manifest.check(pooled.posterior)
    except PosteriorError as error:
        raise RunError(f"round {number}, pooling: {error}") from error

    counts = Counts(len(asked), len(tally.partition_ids), clients.size, number)
    optimizer_state, floored = _moved(method, state, pooled.posterior, counts, manifest)
    following = replace(
        state.with_pooled(tally.partition_ids, number, pooled.diagnostics.get(DAMPING, 1.0)),
        server_round=number,
        posterior=floored.posterior,
        server_optimizer=optimizer_state,
        pooled=pooled.unrounded,
        parts=method.fold(state.parts, combination.combined(), counts),
    )
    metrics = {
        **tally.metrics(),
        **_recorded(pooled.diagnostics, method),
        **(spread.metrics(previous, pooled.posterior) if spread else {}),
        **floored.diagnostics,
    }
    models = _models(kept, previous, floored.posterior, manifest) if kept else None
    return PooledRound(following, metrics, tally.clients(pooled.weights), models)


def _pooled(
    method: Method,
    request: TrainingRequest,
    clients: Clients,
    state: ServerState,
    seed: int,
    on_weighed: Callable[[ClientUpdate, float], None],
    server: Server | None,
) -> tuple[Pooled, RoundStatistics]:
    """Have clients train and return what they pool to, by single updates or by their sum.

    With it comes what is counted of them.

    Raises:
        PosteriorError: What is pooled is no posterior.
        RunError: They are too few.
    """
    asked, number, previous = request.partition_ids, request.server_round, request.posterior
    sizes = _assigned(clients.num_examples, asked)
    if secure_sums := method.exchange.secure_sums:
        wanted = wanted_sum(secure_sums, method.pooling, method.weighting, previous, sizes)
        added_up = clients.add_up(request, wanted)
        unseen = tuple(PooledClient(i, sizes[i]) for i in added_up.partition_ids)
        pooled = pool_sums(method.pooling, wanted, added_up, previous, state.unrounded)
        return pooled, RoundStatistics(len(asked), 0, unseen)
    refused: list[int] = []
    seen: list[PooledClient] = []

    def weighed(update: ClientUpdate, weight: float) -> None:
        seen.append(PooledClient(update.partition_id, update.num_examples, update.metrics))
        on_weighed(update, weight)

    updates = clients.train(request, refused.append)
    if method.pool_noise and method.pool_noise.draws:
        # Before its noise, to round the pool would let a client move it further than by its update.
        updates = (replace(each, posterior=_in_float64(each.posterior)) for each in updates)
    pooled = pool_updates(
        updates,
        method.pooling,
        method.weighting,
        method.defence,
        previous=previous,
        unrounded=state.unrounded,
        num_examples=sizes,
        asked=len(asked),
        generator=lambda i: randomness.generator(seed, "pooling", number, i),
        on_weighed=weighed,
        server=ServerRound(server, number) if server else None,
    )
    return pooled, RoundStatistics(len(asked), len(refused), tuple(seen))


def _in_float64(posterior: Posterior) -> Posterior:
    """Return a posterior whose pool is not rounded to anything less."""
    return Posterior(**{name: v.astype(np.float64) for name, v in posterior.vectors().items()})


def _assigned(num_examples: Mapping[int, int], asked: Sequence[int]) -> dict[int, int]:
    """Return the numbers of examples that the server knows, of those who are asked."""
    return {i: num_examples[i] for i in asked if i in num_examples}


def _recorded(diagnostics: Mapping[str, float], method: Method) -> dict[str, float]:
    """Return what of a rule's report stands in the record: of a noised pool nothing before it."""
    return {k: v for k, v in diagnostics.items() if not (method.pool_noise and k == CLIPPED)}


def _moved(
    method: Method,
    state: ServerState,
    pooled: Posterior,
    counts: Counts,
    manifest: Manifest | None,
) -> tuple[Arrays, Floored]:
    """Return the server optimizer's next state, and where its step has led, above the floor.

    Privacy's noise comes before both: what is made of the noised pool is no further release.
    """
    if method.pool_noise:
        pooled = method.pool_noise(pooled, state.posterior, counts)
    optimizer_state, moved = method.server_optimizer.apply(
        state.server_optimizer,
        state.posterior,
        pooled,
        state.server_round + 1,
        moves_point=manifest.trainable_points if manifest else None,
    )
    return optimizer_state, with_scale_floor(moved, method.scale_floor)


def _check(state: ServerState, manifest: Manifest | None) -> None:
    """Raise if what a round has led to is nothing that another one can begin with.

    The pool has been checked; what moved it afterwards, and what the parts made of arrays that
    clients sent, has not.

    Raises:
        RunError: Naming the round and what is wrong.
    """
    try:
        state.posterior.check()
        if manifest:
            manifest.check(state.posterior)
    except PosteriorError as error:
        raise RunError(f"round {state.server_round}, after pooling: {error}") from error
    named = {"server-optimizer": state.server_optimizer, **state.parts}
    if problem := beyond_float32(named):
        raise RunError(
            f"round {state.server_round}: {problem}; clients may have sent too large ones"
        )


def _models(
    updates: Sequence[ClientUpdate],
    previous: Posterior,
    average: Posterior,
    manifest: Manifest | None,
) -> ClientModels:
    return ClientModels(
        posteriors=tuple(update.posterior for update in updates),
        partition_ids=tuple(update.partition_id for update in updates),
        num_examples=tuple(update.num_examples for update in updates),
        previous=previous,
        average=average,
        manifest=manifest,
    )
