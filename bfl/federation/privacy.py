"""Basis of differential privacy: an update as one vector, its noise, and ε of its releases.

``dp-accounting`` computes ε; the ledger keeps what was released.
"""

from __future__ import annotations

import importlib.util
import math
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.errors import ConfigurationError, DataError
from bfl.files import write_atomically
from bfl.posteriors import Posterior
from bfl.texts import read_text

Array = npt.NDArray[np.float64]

EPSILON, EXAMPLE_EPSILON = "epsilon", "example-epsilon"
"""Names of clients' and of examples' ε in a round's record and among a run's metrics."""

NO_BUDGET = 1e6
"""The default of a budget for ε, which no run with a meaning reaches."""

GREATEST_VALUE = 1e30
"""Bound of means and points: noise leads no value out of float32."""

GREATEST_LOG_VARIANCE = 80.0
"""Bound of |log σ²|: e^−80 and e^80 are normal numbers of float32."""

MOST_HALVINGS = 1000
"""The most halvings of 1/2, of which 37 standard deviations are left."""

ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512, 1024)
"""The orders of Rényi divergences."""

GRID = 2_000
"""The number of parts of ε in the grid of privacy losses."""

MULTIPLIERS = (1e-3, 1e6)
"""The bounds of the search for a multiplier of the noise."""


def difference(received: Posterior, learned: Posterior) -> Array:
    """Return the difference between two posteriors of one size, float64 (2 D + P,).

    Means (D,), points (P,) and logarithms of standard deviations (D,), in this order. In log σ any
    number is a difference, so that noise makes no variance negative.
    """
    return _coordinates(learned) - _coordinates(received)


def add_difference(received: Posterior, change: Array) -> Posterior:
    """Return the posterior that differs from another one by a vector, in the other one's types.

    Args:
        change: (2 D + P,) finite, as ``difference`` gives it.
    """
    size, points = received.size, received.point.size
    there = _coordinates(received) + change
    mean, point, log_scale = np.split(there, [size, size + points])
    log_variance = np.clip(2.0 * log_scale, -GREATEST_LOG_VARIANCE, GREATEST_LOG_VARIANCE)
    return Posterior(
        np.clip(mean, -GREATEST_VALUE, GREATEST_VALUE).astype(received.mean.dtype),
        np.exp(log_variance).astype(received.variance.dtype),
        np.clip(point, -GREATEST_VALUE, GREATEST_VALUE).astype(received.point.dtype),
    )


def _coordinates(posterior: Posterior) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):  # whoever gets it looks
        log_scale = 0.5 * np.log(np.asarray(posterior.variance, np.float64))
    return np.concatenate([posterior.mean, posterior.point, log_scale], dtype=np.float64)


class SystemNormals:
    """Random numbers from the operating system's randomness, which no seed repeats.

    Each normal one is Φ⁻¹ of a uniform number that is as exact near 0 as anywhere, with a random
    sign, so that no tail is cut off. The noise's floating point is not hidden (Mironov 2012, "On
    significance of the least significant bits for differential privacy").
    """

    def standard_normal(self, size: int) -> Array:
        """Return so many independent numbers (size,)."""
        from scipy.special import ndtri  # a fifth of a second of every command

        words = self._words(size)
        negative = (words & np.uint64(1)).astype(bool)
        # In [1, 2), halved as often as fair coins fall: uniform in (0, 1/2), to its last bit.
        mantissa = 1.0 + (words >> np.uint64(12)).astype(np.float64) * 2.0**-52
        tails = ndtri(np.ldexp(mantissa, -2 - self._halvings(size)))
        return np.asarray(np.where(negative, tails, -tails), np.float64)

    def _halvings(self, size: int) -> npt.NDArray[np.int64]:
        """Return how often a fair coin falls in a row, (size,), at most 1,000 times."""
        found = np.zeros(size, np.int64)
        open_ones = np.arange(size)
        while open_ones.size:
            words = self._words(open_ones.size)
            # Its lowest bit that is set: a power of 2, whose exponent is exact.
            lowest = (words & (~words + np.uint64(1))).astype(np.float64)
            found[open_ones] += np.where(words == 0, 64, np.frexp(lowest)[1] - 1)
            open_ones = open_ones[(words == 0) & (found[open_ones] < MOST_HALVINGS)]
        return np.minimum(found, MOST_HALVINGS)

    def random(self, size: int) -> Array:
        """Return so many independent numbers (size,), uniform in [0, 1): multiples of 2^−52."""
        return (self._words(size) >> np.uint64(12)).astype(np.float64) * 2.0**-52

    @staticmethod
    def _words(size: int) -> npt.NDArray[np.uint64]:
        return np.frombuffer(secrets.token_bytes(8 * size), np.uint64)


Normals = SystemNormals | np.random.Generator
"""A source of independent standard normal numbers, and of uniform ones in [0, 1)."""


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

    def check_budget(self, epochs: int, rounds: int) -> None:
        """Refuse a run whose first round of so many epochs has an ε beyond the budget.

        Raises:
            ConfigurationError: Naming the keys; or ε cannot be computed here.
        """
        key, budget = self.multiplier_key, self.budget
        if importlib.util.find_spec("dp_accounting") is None:
            raise ConfigurationError(
                f"{key} is above 0, the package dp-accounting computes ε of such noise, and it is "
                f"not installed; install bfl[privacy], or set {key} to 0"
            )
        releases = self.releases(epochs)
        if (one := self.epsilon(releases)) > budget:
            enough, of_all = (self.multiplier_for(budget, releases * n) for n in (1, rounds))
            raise ConfigurationError(
                f"{self.budget_key} is {budget:g}, and one round with {key} {self.multiplier:g} "
                f"has ε = {one:.4g} at δ = {self.delta:g}; allowed: a {key} of {enough:.4g} for "
                f"one round, of {of_all:.4g} for {rounds}"
            )


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
        """Write that a round begins, or raise OSError; return whether it counts."""
        if self._path is None and server_round in self.begun:
            return False
        self.begun.append(server_round)
        if self._path is not None:
            text = "".join(f"{number}\n" for number in self.begun)
            write_atomically(self._path, text.encode("ascii"))
        return True


def _import_accounting() -> Any:
    import dp_accounting  # about two seconds, and the clients need none of it

    return dp_accounting


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
    return float(_import_accounting().get_epsilon_gaussian(multiplier / math.sqrt(releases), delta))


def noise_multiplier_for(epsilon: float, releases: int, delta: float) -> float:
    """Return the least multiplier z with which so many releases are (ε, δ)-private."""
    return float(_import_accounting().get_sigma_gaussian(epsilon, delta)) * math.sqrt(releases)


@lru_cache(maxsize=256)
def sampled_gaussian_epsilon(multiplier: float, rate: float, steps: int, delta: float) -> float:
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
    """
    if rate == 1.0 or not steps:
        return gaussian_epsilon(multiplier, steps, delta)
    event = _event(multiplier, rate, steps)
    bound = float(_renyi_accountant().compose(event).get_epsilon(delta))
    if not bound:
        return 0.0
    losses = _import_accounting().pld.PLDAccountant(
        neighboring_relation=_import_accounting().NeighboringRelation.REPLACE_SPECIAL,
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
        epsilon: Above 0.
        steps: From 1; for the rest see ``sampled_gaussian_epsilon``.
    """
    if rate == 1.0:
        return noise_multiplier_for(epsilon, steps, delta)
    return float(
        _import_accounting().calibrate_dp_mechanism(
            _renyi_accountant,
            lambda multiplier: _event(multiplier, rate, steps),
            epsilon,
            delta,
            _import_accounting().ExplicitBracketInterval(*MULTIPLIERS),
        )
    )


def _renyi_accountant() -> Any:
    # An example's neighbour is one whose gradient is 0: their number is the same, and known. The
    # sums for orders that are not whole do not always converge.
    neighbours = _import_accounting().NeighboringRelation.REPLACE_SPECIAL
    return _import_accounting().rdp.RdpAccountant(ORDERS, neighboring_relation=neighbours)


def _event(multiplier: float, rate: float, steps: int) -> Any:
    accounting = _import_accounting()
    step = accounting.PoissonSampledDpEvent(rate, accounting.GaussianDpEvent(multiplier))
    return accounting.SelfComposedDpEvent(step, steps)
