"""The server's work on a pool beyond the round: refinement, and models that predict besides it."""

from __future__ import annotations

from dataclasses import replace

from bfl.aggregation.server import RoundContext, Server
from bfl.errors import NotFiniteError, PosteriorError, RunError
from bfl.learning.networks.parametrizations import Parametrization
from bfl.posteriors import Manifest
from strategies.round import TrainingRequest
from strategies.server_state import Round


def refine_round(
    request: TrainingRequest,
    pooled: Round,
    *,
    seed: int,
    manifest: Manifest | None = None,
    server: Server | None = None,
    parametrization: Parametrization,
) -> Round:
    """Return a pooled round, refined, with the models that predict besides its posterior.

    Args:
        parametrization: The clients' network's, which may compute with other variances than a
            posterior has.
    """
    method, used = request.method, parametrization.used_variance
    context = RoundContext(
        seed=seed,
        server_round=request.server_round,
        previous=request.state.posterior,
        pooled=pooled.posterior,
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
    metrics = {**pooled.metrics, **refined.metrics}
    return replace(pooled, state=following, metrics=metrics, models=None)
