"""One federated round on the server, in plain posteriors, arrays and numbers.

1. ``round_request``: which clients are asked, and what they are sent.
2. ``FlowerClients`` in flower_clients.py sends it, asks again those that are lost, reads each reply
   (updates.py) and compares it with the others' (bfl/aggregation/plausibility.py).
3. ``pool_round``: the updates are weighed and pooled; masked/ has one whose updates nobody sees.
4. ``step_server``: what the pool leads to, noise, states, the server optimizer's step.
5. ``refine_round``: distillation, and what else goes on from the pool.

start.py makes the rounds; application/rounds.py writes the record of each. docs/extending.md says
what of a part to write: a round calls a weighting's ``weigh``, for which you write ``gamma``, and a
server optimizer's ``apply``, for which you write its step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bfl import errors, randomness
from bfl.aggregation import pooling
from bfl.aggregation.samplers import ClientModels
from bfl.aggregation.server import RoundContext, Server
from bfl.aggregation.server_optimizers import StepContext
from bfl.aggregation.weightings import Weighting, describe_weights
from bfl.evaluation.precision_spread import PrecisionSpread
from bfl.federation import client_metrics
from bfl.federation.parts import Arrays, Counts, DeclaredArray
from bfl.federation.wire import TRAIN
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.posterior import with_scale_floor
from strategies.method import Method
from strategies.server_state import Round, ServerState
from strategies.updates import ClientUpdate

if TYPE_CHECKING:
    from bfl.configuration import Configuration


def round_request(method: Method, state: ServerState, seed: int) -> TrainingRequest:
    """Return what the clients of the round after a state are asked.

    Who is selected may depend on the seed and the round alone: a round that is made again has the
    same clients.
    """
    return TrainingRequest(
        method=method,
        state=state,
        partition_ids=method.sampling.sample(seed, state.server_round + 1, state.num_clients),
        expected=state.posterior,
        vectors=method.broadcast.vectors,
        name=f"round {state.server_round + 1}",
        broadcast=method.broadcast_extras(state.parts, state.posterior) if method.parts else {},
        declared=method.declared_replies(state.posterior) if method.parts else (),
    )


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """Request to the clients of a round.

    Attributes:
        state: Where the federation stands before it.
        partition_ids: The selected clients, sorted.
        expected: A posterior of the sizes and types that they send back.
        vectors: The names of those of the posterior's vectors that they are sent.
        name: The round, in messages for people.
        message_type: Flower's type: ``TRAIN`` or ``CLOSE`` of ``bfl.federation.wire``.
        broadcast: What they are sent besides the posterior.
        declared: What they have to send besides theirs.
        of_sums: Whether sums over data are asked for, which travel as a posterior's points.
    """

    of_sums: ClassVar[bool] = False

    method: Method
    state: ServerState
    partition_ids: Sequence[int]
    expected: Posterior
    vectors: Sequence[str]
    name: str
    message_type: str = TRAIN
    broadcast: Arrays = field(default_factory=dict)
    declared: tuple[DeclaredArray, ...] = ()

    @property
    def server_round(self) -> int:
        """The round, from 1."""
        return self.state.server_round + 1

    def find_problem(self, update: ClientUpdate) -> str | None:
        """Return why an update that is well formed is of no use in this round; None if it is.

        Shapes, finite values and positive variances are ``updates.read_update``'s to check, and how
        plausible they are beside others' ``bfl.aggregation.plausibility``'s.
        """
        method, state = self.method, self.state
        if problem := method.weighting.report_problem(update.metrics):
            return problem
        if method.pool_noise:
            return method.pool_noise.problem(update.posterior, state.posterior)
        return None


def pool_round(
    request: TrainingRequest,
    updates: Iterable[ClientUpdate],
    *,
    seed: int,
    num_examples: Mapping[int, int],
    manifest: Manifest | None = None,
    server: Server | None = None,
) -> Round:
    """Return the round, before it is refined, from clients' posteriors q_k and weights ω_k.

    Args:
        updates: In the order of partition ids; they may come while others are still training.
        num_examples: By partition id, what clients hold as far as the server knows.
        manifest: The parameters of the network, to whose minima the pool is held.
        server: The server's own data and network, for a weighting that needs them.

    Raises:
        PosteriorError: There is no update, or what they are pooled to is no posterior.
        RunError: No other round can begin with what is made of it.

    Source: Fischer et al. (2024), Algorithm 1, for the round without options.
    """
    method, state, rule = request.method, request.state, request.method.pooling
    entries: list[dict[str, Any]] = []
    reports: list[tuple[int, Mapping[str, float]]] = []
    models: list[ClientUpdate] = []
    sums: pooling.Sums | None = None
    combined: Any = {array.name: np.zeros(array.shape) for array in request.declared}
    total_weight = 0.0
    spread = PrecisionSpread() if rule.by_precision else None
    if method.pool_noise and method.pool_noise.draws:
        # The noise is for the update as it is: rounded to float32 it could move the pool further.
        updates = map(_in_float64, updates)
    for update, weight in weigh(request, updates, num_examples, server):  # q_k and ω_k, k ascending
        client, posterior = update.partition_id, update.posterior
        generator = None
        if rule.stochastic:
            generator = randomness.generator(seed, "pooling", request.server_round, client)
        if weight:
            sums = sums or pooling.Sums(
                rule, posterior, state.posterior, state.unrounded_if_unmoved
            )
            sums.add(posterior, weight, generator)
        if spread:
            spread.add(posterior, weight)
        for array in request.declared:  # in float64; their memory does not grow with the clients
            values = update.extras[array.name].astype(np.float64)
            combined[array.name] += values if array.combined == "sum" else weight * values
        total_weight += weight
        if method.needs_models:
            models.append(update)
        entries.append(client_entry(update, weight))
        reports.append((update.num_examples, update.metrics))
        del update, posterior  # nobody holds them while the next one is waited for
    if sums is None:
        raise errors.PosteriorError("nothing to pool: no client with a positive weight has replied")
    pooled = sums.pool()
    weights = [entry["weight"] for entry in entries]
    metrics = {**mean_metrics(reports), **describe_weights(weights)}
    for entry, share in zip(entries, pooling.normalise(weights), strict=True):
        entry["weight"] = share
    if spread:
        metrics |= spread.metrics(state.posterior, pooled.posterior)
    for array in request.declared:
        if array.combined == "mean":
            combined[array.name] /= total_weight
    finished = step_server(request, pooled, entries, metrics, combined, manifest)
    if not models:
        return finished
    return replace(
        finished,
        models=ClientModels(
            posteriors=tuple(update.posterior for update in models),
            partition_ids=tuple(update.partition_id for update in models),
            num_examples=tuple(update.num_examples for update in models),
            previous=state.posterior,
            average=finished.posterior,
            manifest=manifest,
        ),
    )


def weigh(
    request: TrainingRequest,
    updates: Iterable[ClientUpdate],
    num_examples: Mapping[int, int],
    server: Server | None,
) -> Iterator[tuple[ClientUpdate, float]]:
    """Yield updates, defended, with their weights, in their order.

    Where the server knows who holds how many examples, and refuses an update that says otherwise, a
    weighting by these numbers is known before anybody has replied. Then each update can be pooled
    and let go when its turn comes: the server's memory does not grow with the number of clients. If
    some do not reply, the weights of the others do not sum to 1, which all rules but those whose
    ``weights_are_fractions`` make up for.
    """
    method, selected = request.method, request.partition_ids
    known = {client: num_examples[client] for client in selected if client in num_examples}
    if (
        method.weighting.counts_only
        and not method.pooling.weights_are_fractions
        and not method.defence.active
        and len(known) == len(selected)
    ):
        foreseen = foreseen_weights(method.weighting, known)
        for update in updates:
            yield update, foreseen[update.partition_id]
            del update  # nobody holds it while the next one is waited for
        return
    all_updates = list(updates)
    posteriors = method.defence.protect([update.posterior for update in all_updates])
    weights = method.weighting.weigh(
        posteriors,
        [update.num_examples for update in all_updates],
        request.state.posterior,
        server,
        [update.metrics for update in all_updates],
    )
    shares = pooling.normalise(weights)
    for update, posterior, share in zip(all_updates, posteriors, shares, strict=True):
        yield replace(update, posterior=posterior), share


def foreseen_weights(weighting: Weighting, num_examples: Mapping[int, int]) -> dict[int, float]:
    """Return the weights of a round's clients, with sum 1, by numbers of examples of at least 1."""
    fractions = pooling.normalise(weighting.weigh_counts(list(num_examples.values())))
    return dict(zip(num_examples, fractions, strict=True))


def step_server(
    request: TrainingRequest,
    pooled: pooling.Pooled,
    clients: Sequence[Mapping[str, Any]],
    metrics: Mapping[str, float],
    combined: Arrays,
    manifest: Manifest | None,
) -> Round:
    """Return what a pool leads to: its noise, the parts' states, the server's step, the floor.

    Args:
        clients: An entry for each whose update was pooled, in the order of partition ids.
        metrics: What was measured of their updates.
        combined: What they have sent besides their posteriors, summed or averaged.
    """
    method, state, number = request.method, request.state, request.server_round
    ids = [client["client"] for client in clients]
    counts = Counts(len(request.partition_ids), len(ids), state.num_clients, number)
    measured = {
        client_metrics.NUM_EXAMPLES: sum(client[client_metrics.NUM_EXAMPLES] for client in clients),
        **pooled.diagnostics,
        **metrics,
    }
    posterior, parts, optimizer = pooled.posterior, state.parts, state.server_optimizer
    # The noise of an outgoing chain that the server draws (``draws_on_pool``). It comes before the
    # rest: what is made of a noised pool reveals no more.
    if method.pool_noise:
        posterior = method.pool_noise(posterior, state.posterior, counts)
        measured.pop(pooling.CLIPPED_FRACTION, None)  # of the pool before its noise
    if method.parts:
        parts = method.update_server_states(state.parts, combined, counts)
    if method.server_optimizer.active:
        optimizer, posterior = method.server_optimizer.apply(
            state.server_optimizer,
            state.posterior,
            posterior,
            StepContext(number, counts.asked, counts.pooled, combined),
            moves_point=manifest.trainable_points if manifest else None,
        )
    posterior, at_floor = with_scale_floor(posterior, method.scale_floor)
    # A client goes on from the state that it kept if ``last_pooled`` names that round; a part's
    # ``commit`` gets ``damping``.
    last_pooled, damping = state.last_pooled.copy(), state.damping.copy()
    last_pooled[ids], damping[ids] = number, pooled.diagnostics.get(pooling.DAMPING, 1.0)
    # A part's state is saved as it is; a new field needs lines in ``to_arrays``, ``from_arrays``.
    next_state = replace(
        state,
        server_round=number,
        last_pooled=last_pooled,
        damping=damping,
        posterior=posterior,
        unrounded=pooled.unrounded,
        server_optimizer=optimizer,
        parts=parts,
        predictive={},
    )
    next_state.check(manifest)
    return Round(next_state, {**measured, **at_floor}, clients)


def refine_round(
    request: TrainingRequest,
    pooled: Round,
    *,
    seed: int,
    manifest: Manifest | None = None,
    server: Server | None = None,
    configuration: Configuration | None = None,
) -> Round:
    """Return a pooled round, refined, with the models that predict besides its posterior.

    Args:
        configuration: The clients', whose network may compute with other variances than a posterior
            has.
    """
    from bfl.learning.networks.parametrizations import SOFTPLUS

    parametrization = configuration.inference.parametrization if configuration else SOFTPLUS
    method, to_used = request.method, parametrization.used_variance
    context = RoundContext(
        seed=seed,
        server_round=request.server_round,
        previous=request.state.posterior,
        pooled=pooled.posterior,
        sampler=method.sampler,
        clients=pooled.models.transform_variances(to_used) if pooled.models else None,
        server=server,
    )
    try:
        refined = method.refinement.refine(context)
    except (errors.NotFiniteError, errors.PosteriorError) as error:
        raise errors.RunError(
            f"{request.name}, refinement '{method.refinement.name}': {error}; the clients' values, "
            "or the refinement's own steps, are too large for the network"
        ) from error
    predictive = method.predictive.keep(context)
    next_state = replace(pooled.state, posterior=refined.posterior, predictive=predictive)
    next_state.check(manifest)
    metrics = {**pooled.metrics, **refined.metrics}
    return replace(pooled, state=next_state, metrics=metrics, models=None)


def client_entry(update: ClientUpdate, weight: float) -> dict[str, Any]:
    """Return what a round's record says of a client that was pooled.

    ``client`` is its partition id; ``num-examples``; those of its measurements of which a record
    keeps each; and its ``weight``, in the scale of all others'.
    """
    measurements = {
        name: update.metrics[name]
        for name in sorted(update.metrics)
        if name in client_metrics.OF_EACH_CLIENT
        or name.startswith((client_metrics.MEME, client_metrics.PERSONAL))
    }
    of_client = {"client": update.partition_id, client_metrics.NUM_EXAMPLES: update.num_examples}
    return {**of_client, **measurements, "weight": weight}


def mean_metrics(reports: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, float]:
    """Return clients' metrics, each averaged with the numbers of examples of those that sent it."""
    means: dict[str, float] = {}
    for name in dict.fromkeys(name for _, metrics in reports for name in metrics):
        sent = [(metrics[name], count) for count, metrics in reports if name in metrics]
        values, counts = zip(*sent, strict=True)
        means[f"{client_metrics.NAMESPACE}{name}"] = float(np.average(values, weights=counts))
    return means


def _in_float64(update: ClientUpdate) -> ClientUpdate:
    vectors = update.posterior.vectors().items()
    exact = Posterior(**{name: vector.astype(np.float64) for name, vector in vectors})
    return replace(update, posterior=exact)
