"""What can be refused before the first round of whoever starts a Strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flwr.app import ArrayRecord

from bfl.aggregation.pooling import PoolingRule
from bfl.aggregation.server import Server
from bfl.aggregation.weightings import Weighting
from bfl.engine.resources import available_memory
from bfl.errors import ConfigurationError, PosteriorError
from bfl.federation.secure_aggregation.accuracy import check_accuracy
from bfl.federation.secure_aggregation.neighbours import FEWEST_CLIENTS
from bfl.federation.wire import posterior_from_arrays
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.posterior import VECTORS
from strategies.method import Method
from strategies.pool_updates import foreseen_weights

WORKING_VECTORS = 8
"""Vectors over all parameters that the server holds beside the clients' models."""


def initial_posterior(arrays: ArrayRecord, manifest: Manifest | None) -> Posterior:
    """Return the posterior that the first round begins with.

    Args:
        arrays: The arrays that a Strategy was started with.
        manifest: The parameters of the network, where they are known.

    Raises:
        ConfigurationError: The arrays are no posterior.
    """
    if set(arrays) != set(VECTORS):
        raise ConfigurationError(
            f"initial_arrays has {', '.join(sorted(arrays)) or 'no arrays'}; expected "
            f"{', '.join(VECTORS)}: posterior_to_arrays of bfl.federation.wire makes them"
        )
    posterior = posterior_from_arrays(arrays)
    try:
        posterior.check()
        if manifest:
            manifest.check(posterior)
    except PosteriorError as error:
        raise ConfigurationError(f"initial_arrays: {error}") from error
    return posterior


def check_server_side(method: Method, server: Server | None) -> None:
    """Raise if a part needs what the server does not have.

    Raises:
        ConfigurationError: There is no network or no data, or the data do not serve.
    """
    for kind, part in (("refinement", method.refinement), ("weighting", method.weighting)):
        if part.needs_server and server is None:
            raise ConfigurationError(
                f"{kind} '{part.name}' needs images and a network of the server's own, and this "
                "Strategy has neither; give it as server (bfl.experiments.run.server), or a "
                f"{kind} without"
            )
        part.check(server.data if server else None)


def check_exchange(
    method: Method, posterior: Posterior, known: Mapping[int, int], asked: Sequence[int]
) -> None:
    """Raise if the server is to learn sums alone, and something needs more, or not enough is known.

    Args:
        method: The parts.
        posterior: The posterior that the first round begins with.
        known: How many examples clients hold, by partition id, as far as the server knows.
        asked: Who is asked in a round.

    Raises:
        ConfigurationError: Naming what.
    """
    secure_sums = method.exchange.secure_sums
    if not secure_sums:
        return
    said = f"exchange '{method.exchange.name}': the server learns sums alone, and "
    excluded = method.exchange.excludes()
    parts = (method.pooling, method.weighting, method.defence, method.refinement, method.predictive)
    wrong = [part.name for part in (*parts, *method.parts) if part.has() & excluded]
    if "sums" not in method.pooling.has():
        wrong.append(method.pooling.name)
    if not method.weighting.counts_only:
        wrong.append(method.weighting.name)
    if wrong:
        raise ConfigurationError(
            f"{said}{', '.join(dict.fromkeys(wrong))} needs single updates; allowed: "
            "exchange='direct', or another part"
        )
    if beside := [array.name for array in method.declared(posterior)]:
        raise ConfigurationError(
            f"{said}clients are to send {', '.join(beside)} beside their posteriors; allowed: "
            "exchange='direct'"
        )
    if len(asked) < FEWEST_CLIENTS:
        raise ConfigurationError(
            f"{said}of {len(asked)} clients a round one that knows its own update knows the "
            f"other's; allowed: at least {FEWEST_CLIENTS} (fraction-train), or exchange='direct'"
        )
    unknown = [str(client) for client in asked if client not in known]
    if unknown:
        raise ConfigurationError(
            f"{said}the number of examples of partitions {', '.join(unknown)} is not known before "
            "the first round; allowed: nodes that declare own-examples, examples that the server "
            "assigns, or exchange='direct'"
        )
    weights = foreseen_weights(method.weighting, {client: known[client] for client in asked})
    check_accuracy(method.pooling, secure_sums.value_range, posterior, list(weights.values()))


def check_memory(method: Method, posterior: Posterior, asked: int) -> None:
    """Raise if the models of all clients of a round are needed at once and do not fit in memory.

    Raises:
        ConfigurationError: Saying how much is needed and how much there is.
    """
    if not method.needs_models:
        return
    parameters = posterior.size + posterior.point.size
    model = sum(getattr(posterior, name).nbytes for name in VECTORS)
    # What pooling, sampling and averaging have in float64 at a time.
    needed, free = asked * model + WORKING_VECTORS * 8 * parameters, available_memory()
    if needed > free:
        parts = [p.name for p in (method.refinement, method.predictive) if p.needs_models]
        raise ConfigurationError(
            f"{' and '.join(parts)} need the models of all {asked} clients of a round at once, "
            f"{needed / 1e9:.1f} GB with {parameters:,} parameters, and there are "
            f"{free / 1e9:.1f} GB; allowed: fewer clients a round (fraction-train), a smaller "
            "model, or neither"
        )


def check_parts_go_with(posterior: Posterior, rule: PoolingRule, weighting: Weighting) -> None:
    """Raise if a network has no Gaussian parameters and a part says nothing about points.

    Raises:
        ConfigurationError: Naming the part.
    """
    if posterior.size:
        return
    if not rule.accepts_points:
        raise ConfigurationError(
            f"strategy '{rule.name}' pools Gaussian posteriors, and initial_arrays has only point "
            "parameters, which every strategy averages; allowed: strategies that accept points, "
            "such as naive-weighted-averaging"
        )
    if weighting.requires_gaussian:
        raise ConfigurationError(
            f"weighting '{weighting.name}' compares posteriors, and initial_arrays has only point "
            "parameters; allowed: weightings that go by numbers, such as train-size"
        )
