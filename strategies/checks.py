"""What can be refused before the first round of whoever starts a Strategy."""

from __future__ import annotations

from flwr.app import ArrayRecord

from bfl.aggregation.pooling import PoolingRule
from bfl.aggregation.weightings import Weighting
from bfl.errors import ConfigurationError, PosteriorError
from bfl.federation.wire import posterior_from_arrays
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.posterior import VECTORS


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
