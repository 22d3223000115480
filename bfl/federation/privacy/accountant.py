"""ε of so many Gaussian releases, by ``dp-accounting``."""

from __future__ import annotations

import importlib.util
import math
from functools import lru_cache
from typing import Any

from bfl.errors import ConfigurationError

EPSILON = "epsilon"
"""Name of the clients' ε in a round's record and among a run's metrics."""

EXAMPLE_EPSILON = "example-epsilon"
"""Name of single examples' ε in the same places."""

ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512, 1024)
"""The orders of Rényi divergences."""

GRID = 2_000
"""Into how many parts ε is divided where privacy losses are computed on a grid."""

MULTIPLIERS = (1e-3, 1e6)
"""Between which a multiplier of the noise is looked for."""


def check_accountant(multiplier_key: str) -> None:
    """Raise unless the accountant is installed.

    Args:
        multiplier_key: The key whose noise it is to compute.

    Raises:
        ConfigurationError: Saying how to install it.
    """
    if importlib.util.find_spec("dp_accounting") is None:
        raise ConfigurationError(
            f"{multiplier_key} is above 0, the package dp-accounting computes ε of such noise, and "
            f"it is not installed; install bfl[privacy], or set {multiplier_key} to 0"
        )


def gaussian_epsilon(multiplier: float, releases: int, delta: float) -> float:
    """Return the least ε for which so many Gaussian releases are (ε, δ)-differentially private.

    None of them is amplified by sampling: T releases whose noise has z times the sensitivity are as
    one whose noise has z/√T times. The accountant gives that one's ε exactly (Balle and Wang 2018,
    "Improving the Gaussian mechanism for differential privacy", Theorem 8). It holds as well if
    each release was chosen after the earlier ones were seen.

    Args:
        multiplier: z: the noise's standard deviation in units of the sensitivity, above 0.
        releases: T, from 0.
        delta: δ, in (0, 1).
    """
    if not releases:
        return 0.0
    # Its import takes about two seconds, and the clients need none of it.
    import dp_accounting

    return float(dp_accounting.get_epsilon_gaussian(multiplier / math.sqrt(releases), delta))


def noise_multiplier_for(epsilon: float, releases: int, delta: float) -> float:
    """Return the least multiplier z with which so many releases are (ε, δ)-private."""
    import dp_accounting

    return float(dp_accounting.get_sigma_gaussian(epsilon, delta)) * math.sqrt(releases)


@lru_cache(maxsize=256)
def sampled_gaussian_epsilon(multiplier: float, rate: float, steps: int, delta: float) -> float:
    """Return an ε for which so many Gaussian releases of random batches are (ε, δ)-private.

    Each takes every example with probability q by itself, and nobody but the client knows which.
    It is an upper bound, of two the lower one: by privacy loss distributions (Koskela, Jälkö and
    Honkela 2020, "Computing tight differential privacy guarantees using FFT"), whose values are
    rounded upwards on a grid, and by Rényi divergences (Mironov, Talwar and Zhang 2019, "Rényi
    differential privacy of the sampled Gaussian mechanism"), which says how fine a grid it takes.
    With q = 1 all examples are in every batch, and ε is exact, see ``gaussian_epsilon``.

    Args:
        multiplier: z: the noise's standard deviation in units of the norm to which an example's
            part of a release is clipped, above 0.
        rate: q, in (0, 1].
        steps: The number of releases, from 0.
        delta: δ, in (0, 1).
    """
    if rate == 1.0 or not steps:
        return gaussian_epsilon(multiplier, steps, delta)
    import dp_accounting

    event = _event(multiplier, rate, steps)
    bound = float(_renyi_accountant().compose(event).get_epsilon(delta))
    if not bound:
        return 0.0
    losses = dp_accounting.pld.PLDAccountant(
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
        value_discretization_interval=bound / GRID,
    )
    try:
        return min(bound, float(losses.compose(event).get_epsilon(delta)))
    except OverflowError:  # so little noise that its losses are beyond what a number holds
        return bound


@lru_cache(maxsize=256)
def sampled_noise_multiplier_for(epsilon: float, rate: float, steps: int, delta: float) -> float:
    """Return a multiplier z with which ``sampled_gaussian_epsilon`` is at most ε.

    By Rényi divergences alone, so that it may be some percent more than needed.

    Args:
        epsilon: ε, above 0.
        rate: q, in (0, 1].
        steps: The number of releases, from 1.
        delta: δ, in (0, 1).
    """
    if rate == 1.0:
        return noise_multiplier_for(epsilon, steps, delta)
    import dp_accounting

    return float(
        dp_accounting.calibrate_dp_mechanism(
            _renyi_accountant,
            lambda multiplier: _event(multiplier, rate, steps),
            epsilon,
            delta,
            dp_accounting.ExplicitBracketInterval(*MULTIPLIERS),
        )
    )


def _renyi_accountant() -> Any:
    import dp_accounting

    # An example's neighbour is one whose gradient is 0: their number is the same, and known. The
    # sums for orders that are not whole do not always converge.
    neighbours = dp_accounting.NeighboringRelation.REPLACE_SPECIAL
    return dp_accounting.rdp.RdpAccountant(ORDERS, neighboring_relation=neighbours)


def _event(multiplier: float, rate: float, steps: int) -> Any:
    import dp_accounting

    one = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    return dp_accounting.SelfComposedDpEvent(one, steps)
