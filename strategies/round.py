"""One federated round on the server: clients' updates in, the next global posterior out.

Everything here is plain posteriors, arrays and numbers; ``strategies.flower_clients`` asks the
clients and reads what they answer. A round whose updates nobody sees is made by
``strategies.masked``, and ends as this one does, in ``next_round``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bfl import randomness
from bfl.aggregation import pooling
from bfl.aggregation.precision_spread import PrecisionSpread
from bfl.aggregation.samplers import ClientModels
from bfl.aggregation.server import RoundContext, Server, ServerRound
from bfl.aggregation.server_optimizers import StepContext
from bfl.aggregation.weightings import Weighting, describe_weights
from bfl.errors import NotFiniteError, PosteriorError, RunError
from bfl.federation.parts import Arrays, Counts
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.posterior import with_scale_floor
from strategies.request import TrainingRequest
from strategies.server_state import PooledRound
from strategies.updates import (
    ClientUpdate,
    CombinedExtras,
    PooledClient,
    client_entries,
    round_metrics,
)

if TYPE_CHECKING:
    from bfl.learning.networks.parametrizations import Parametrization


def pool_round(
    request: TrainingRequest,
    updates: Iterable[ClientUpdate],
    *,
    seed: int,
    num_examples: Mapping[int, int],
    manifest: Manifest | None = None,
    server: Server | None = None,
) -> PooledRound:
    """Return what the updates of a round are pooled to, before it is refined.

    Args:
        request: What the clients were asked.
        updates: In the order of partition ids; they may come while others are still training.
        seed: The run's.
        num_examples: By partition id, what clients hold as far as the server knows.
        manifest: The parameters of the network, to whose minima the pool is held.
        server: The server's own data and network, for a weighting that needs them.

    Raises:
        RunError: There is no update, or no other round can begin with what is made of them.

    Source: Fischer et al. (2024), Algorithm 1, for the round without options.
    """
    method, state, number = request.method, request.state, request.server_round
    clients: list[PooledClient] = []
    weights: list[float] = []
    models: list[ClientUpdate] = []
    extras, spread = CombinedExtras(request.declared), PrecisionSpread()

    def add(weighted: tuple[ClientUpdate, float]) -> pooling.Client:
        update, weight = weighted
        measured = update.metrics
        clients.append(PooledClient(update.partition_id, update.num_examples, measured, weight))
        weights.append(weight)
        extras.add(update.extras, weight)
        if method.pooling.by_precision:
            spread.add(update.posterior, weight)
        if method.needs_models:
            models.append(update)
        labels = ("pooling", number, update.partition_id)
        drawer = randomness.generator(seed, *labels) if method.pooling.stochastic else None
        return update.posterior, weight, drawer

    if method.pool_noise and method.pool_noise.draws:
        updates = map(_in_float64, updates)  # rounding would let one move the pool further
    with pooling_errors(request):
        # Maps in place of loops, which would hold an update while the next one is waited for.
        weighted = map(add, weigh(request, updates, num_examples, server))
        pooled = pooling.pool_weighted(
            method.pooling, weighted, previous=state.posterior, unrounded=state.unrounded
        )
    metrics = describe_weights(weights)
    if method.pooling.by_precision:
        metrics |= spread.metrics(state.posterior, pooled.posterior)
    result = next_round(request, pooled, clients, metrics, extras.combined(), manifest)
    if not models:
        return result
    return replace(
        result,
        models=ClientModels(
            posteriors=tuple(update.posterior for update in models),
            partition_ids=tuple(update.partition_id for update in models),
            num_examples=tuple(update.num_examples for update in models),
            previous=state.posterior,
            average=result.state.posterior,
            manifest=manifest,
        ),
    )


def next_round(
    request: TrainingRequest,
    pooled: pooling.Pooled,
    clients: Sequence[PooledClient],
    metrics: Mapping[str, float],
    combined: Arrays,
    manifest: Manifest | None,
) -> PooledRound:
    """Return what a pool leads to: its noise, the parts' states, the server's step, the floor.

    Args:
        clients: Those whose updates were pooled, in the order of partition ids.
        metrics: What was measured of their updates.
        combined: What they have sent besides their posteriors, summed or averaged.

    Raises:
        RunError: No other round can begin with it.
    """
    method, state, number = request.method, request.state, request.server_round
    ids = [client.partition_id for client in clients]
    counts = Counts(len(request.partition_ids), len(ids), state.num_clients, number)
    measured = {**round_metrics(clients), **pooled.diagnostics, **metrics}
    posterior, parts, optimizer = pooled.posterior, state.parts, state.server_optimizer
    if manifest:
        with pooling_errors(request):
            manifest.check(posterior)
    if method.pool_noise:  # before the rest: what is made of a noised pool is no further release
        posterior = method.pool_noise(posterior, state.posterior, counts)
        measured.pop(pooling.CLIPPED, None)
    if method.parts:
        parts = method.fold(state.parts, combined, counts)
    if not method.server_optimizer.idle:
        optimizer, posterior = method.server_optimizer.apply(
            state.server_optimizer,
            state.posterior,
            posterior,
            StepContext(number, counts.asked, counts.pooled, combined),
            moves_point=manifest.trainable_points if manifest else None,
        )
    floored = with_scale_floor(posterior, method.scale_floor)
    following = replace(
        state.with_pooled(ids, number, pooled.diagnostics.get(pooling.DAMPING, 1.0)),
        server_round=number,
        posterior=floored.posterior,
        before_rounding=pooled.unrounded,
        server_optimizer=optimizer,
        parts=parts,
        predictive={},
    )
    following.check(manifest)
    return PooledRound(following, {**measured, **floored.diagnostics}, client_entries(clients))


def refine_round(
    request: TrainingRequest,
    pooled: PooledRound,
    *,
    seed: int,
    manifest: Manifest | None = None,
    server: Server | None = None,
    parametrization: Parametrization,
) -> PooledRound:
    """Return a pooled round, refined, with the models that predict besides its posterior.

    Args:
        parametrization: The clients' network's, which may compute with other variances than a
            posterior has.

    Raises:
        RunError: It cannot be refined, or what it is refined to is no posterior.
    """
    method = request.method
    if method.refinement.idle and method.predictive.idle:
        return pooled
    used = parametrization.used_variance
    context = RoundContext(
        seed=seed,
        server_round=request.server_round,
        previous=request.posterior,
        pooled=pooled.state.posterior,
        sampler=method.sampler,
        clients=pooled.models.computing_with(used) if pooled.models else None,
        server=server,
    )
    try:
        refined = method.refinement.refine(context)
    except (NotFiniteError, PosteriorError) as error:
        raise RunError(
            f"{request.name}, refinement '{method.refinement.name}': {error}; the clients' values, "
            "or the refinement's own steps, are too large for the network"
        ) from error
    predictive = method.predictive.keep(context)
    following = replace(pooled.state, posterior=refined.posterior, predictive=predictive)
    following.check(manifest)
    return replace(pooled, state=following, metrics={**pooled.metrics, **refined.metrics})


def weigh(
    request: TrainingRequest,
    updates: Iterable[ClientUpdate],
    num_examples: Mapping[int, int],
    server: Server | None,
) -> Iterable[tuple[ClientUpdate, float]]:
    """Return updates, defended, with their weights, in their order.

    Where the server knows who holds how many examples, and refuses an update that says otherwise, a
    weighting by these numbers is known before anybody has replied. Then each update can be pooled
    and let go when its turn comes: the server's memory does not grow with the number of clients. If
    some do not reply, the weights of the others do not sum to 1, which all rules but those whose
    ``weights_are_fractions`` make up for.

    Raises:
        PosteriorError: No client has a positive weight.
    """
    method, asked = request.method, request.partition_ids
    known = {client: num_examples[client] for client in asked if client in num_examples}
    if (
        method.weighting.counts_only
        and not method.pooling.weights_are_fractions
        and method.defence.idle
        and len(known) == len(asked)
    ):
        foreseen = foreseen_weights(method.weighting, known)

        def with_weight(update: ClientUpdate) -> tuple[ClientUpdate, float]:
            return update, foreseen[update.partition_id]

        return map(with_weight, updates)
    together = list(updates)
    posteriors = method.defence.protect([update.posterior for update in together])
    weights = method.weighting.weigh(
        posteriors,
        [update.num_examples for update in together],
        request.posterior,
        ServerRound(server, request.server_round) if server else None,
        [update.metrics for update in together],
    )
    defended = [
        replace(update, posterior=posterior)
        for update, posterior in zip(together, posteriors, strict=True)
    ]
    return zip(defended, pooling.normalised(weights), strict=True)


def foreseen_weights(weighting: Weighting, num_examples: Mapping[int, int]) -> dict[int, float]:
    """Return the weights of a round's clients by partition id, with sum 1.

    Args:
        weighting: A scheme that goes by ``counts_only``.
        num_examples: What each client that is asked holds, by partition id; all at least 1.
    """
    fractions = pooling.normalised(weighting.weigh_counts(list(num_examples.values())))
    return dict(zip(num_examples, fractions, strict=True))


def _in_float64(update: ClientUpdate) -> ClientUpdate:
    vectors = update.posterior.vectors().items()
    exact = Posterior(**{name: vector.astype(np.float64) for name, vector in vectors})
    return replace(update, posterior=exact)


@contextmanager
def pooling_errors(request: TrainingRequest) -> Iterator[None]:
    """Raise what is wrong with a pool as the round's error."""
    try:
        yield
    except PosteriorError as error:
        raise RunError(f"{request.name}, pooling: {error}") from error
