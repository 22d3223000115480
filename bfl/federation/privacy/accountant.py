"""ε of so many Gaussian releases, by ``dp-accounting``, and the ledger of what was released."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from bfl.errors import ConfigurationError, DataError
from bfl.files import write_atomically
from bfl.texts import read_text

NO_BUDGET = 1e6
"""The default of a budget for ε, which no run with a meaning reaches."""


@dataclass(frozen=True)
class Mechanism:
    """Noised releases of a client, with what their ε is and may be.

    Attributes:
        metric: The name of ε in a round's record and among a run's metrics.
        multiplier: The noise's multiplier z, above 0.
        releases: How many a client makes in a round, by its number of epochs.
        epsilon: ε by the number of releases.
        multiplier_for: The z with which so many releases, the second argument, have an ε.
    """

    metric: str
    multiplier_key: str
    multiplier: float
    budget_key: str
    budget: float
    delta: float
    releases: Callable[[int], int]
    epsilon: Callable[[int], float]
    multiplier_for: Callable[[float, int], float]


class Ledger:
    """The rounds that a run has begun, in their order, written before any client is asked.

    A round that is made again counts again where its noise is drawn anew; where the seed keys the
    noise, it is no other release, and no file is kept.

    Args:
        path: The file, of one line a round; None where noise is keyed by the seed.
        finished: The rounds that are over, which count whatever the file says.

    Attributes:
        begun: The rounds begun so far; one that was made again stands here again.
    """

    def __init__(self, path: Path | None, finished: Iterable[int] = ()) -> None:
        self._path = path
        self.begun: list[int] = []
        if path is not None and path.is_file():
            try:
                self.begun = [int(line) for line in read_text(path).split()]
            except ValueError as error:
                raise DataError(f"{path} is corrupt: {error}") from error
        self.begun += [number for number in finished if number not in self.begun]

    def begin(self, server_round: int) -> bool:
        """Note that a round begins, so that it outlives this process; return whether it counts.

        Raises:
            OSError: It cannot be written.
        """
        if self._path is None and server_round in self.begun:
            return False
        self.begun.append(server_round)
        if self._path is not None:
            text = "".join(f"{number}\n" for number in self.begun)
            write_atomically(self._path, text.encode("ascii"))
        return True


EPSILON, EXAMPLE_EPSILON = "epsilon", "example-epsilon"
"""Names of clients' and of examples' ε in a round's record and among a run's metrics."""

ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512, 1024)
"""The orders of Rényi divergences."""

GRID = 2_000
"""The number of parts of ε in the grid of privacy losses."""

MULTIPLIERS = (1e-3, 1e6)
"""The bounds of the search for a multiplier of the noise."""


def check_accountant(multiplier_key: str) -> None:
    """Raise unless the accountant is installed."""
    if importlib.util.find_spec("dp_accounting") is None:
        raise ConfigurationError(
            f"{multiplier_key} is above 0, the package dp-accounting computes ε of such noise, and "
            f"it is not installed; install bfl[privacy], or set {multiplier_key} to 0"
        )


def gaussian_epsilon(multiplier: float, releases: int, delta: float) -> float:
    """Return the least ε for which so many Gaussian releases are (ε, δ)-differentially private.

    T releases with the multiplier z, without amplification by sampling, are as one with z/√T, also
    if each was chosen after the earlier ones were seen. That one's ε is exact (Balle and Wang 2018,
    "Improving the Gaussian mechanism for differential privacy", Theorem 8).

    Args:
        multiplier: z: the noise's standard deviation in units of the sensitivity, above 0.
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


WITHOUT_SUMS = (1.0, 0)
"""No release of all examples besides those of batches."""


@lru_cache(maxsize=256)
def sampled_gaussian_epsilon(
    multiplier: float,
    rate: float,
    steps: int,
    delta: float,
    of_all: tuple[float, int] = WITHOUT_SUMS,
) -> float:
    """Return an ε for which so many Gaussian releases of random batches are (ε, δ)-private.

    Each takes every example with probability q. It is the lower one of two upper bounds: by privacy
    loss distributions (Koskela, Jälkö and Honkela 2020, "Computing tight differential privacy
    guarantees using FFT"), and by Rényi divergences (Mironov, Talwar and Zhang 2019, "Rényi
    differential privacy of the sampled Gaussian mechanism"), which also say how fine a grid the
    first one takes. With q = 1, ε is exact, see ``gaussian_epsilon``.

    Args:
        multiplier: z: the noise's standard deviation in units of the norm to which an example's
            part of a release is clipped, above 0.
        rate: q, in (0, 1].
        steps: The number of releases, from 0.
        delta: δ, in (0, 1).
        of_all: The multiplier and the number of releases besides that take all examples.
    """
    if rate == 1.0 or not steps:
        other, count = of_all
        if not count:
            return gaussian_epsilon(multiplier, steps, delta)
        # Two kinds of releases are as one.
        return gaussian_epsilon((steps / multiplier**2 + count / other**2) ** -0.5, 1, delta)
    import dp_accounting

    event = _event(multiplier, rate, steps, of_all)
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
def sampled_noise_multiplier_for(
    epsilon: float,
    rate: float,
    steps: int,
    delta: float,
    of_all: tuple[float, int] = WITHOUT_SUMS,
) -> float:
    """Return a multiplier z with which ``sampled_gaussian_epsilon`` is at most ε.

    By Rényi divergences alone, so that it may be some percent more than needed.

    Args:
        epsilon: Above 0, and above that of the releases ``of_all`` alone.
        steps: From 1; for the rest see ``sampled_gaussian_epsilon``.
    """
    if rate == 1.0 and not of_all[1]:
        return noise_multiplier_for(epsilon, steps, delta)
    import dp_accounting

    return float(
        dp_accounting.calibrate_dp_mechanism(
            _renyi_accountant,
            lambda multiplier: _event(multiplier, rate, steps, of_all),
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


def _event(multiplier: float, rate: float, steps: int, of_all: tuple[float, int]) -> Any:
    import dp_accounting

    one = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    batches = dp_accounting.SelfComposedDpEvent(one, steps)
    other, count = of_all
    if not count:
        return batches
    sums = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(other), count)
    return dp_accounting.ComposedDpEvent([batches, sums])
