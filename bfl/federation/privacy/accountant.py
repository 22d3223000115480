"""ε of so many Gaussian releases, by ``dp-accounting``."""

from __future__ import annotations

import importlib.util
import math

from bfl.errors import ConfigurationError

EPSILON = "epsilon"
"""What ε is called in a round's record and among a run's metrics."""


def check_accountant() -> None:
    """Raise unless the accountant is installed.

    Raises:
        ConfigurationError: Saying how to install it.
    """
    if importlib.util.find_spec("dp_accounting") is None:
        raise ConfigurationError(
            "outgoing has 'noise', whose ε the package dp-accounting reckons, and it is not "
            "installed; install bfl[privacy], or take outgoing without noise"
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
