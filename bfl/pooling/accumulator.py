"""One accumulator for every pooling rule: sums of statistics, in memory that no client adds to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from bfl.errors import PosteriorError
from bfl.pooling.base import Array, Block, PoolingRule, Totals
from bfl.posteriors.posterior import Posterior, Vector

BLOCK = 16384
"""Parameters taken at a time: the handful of float64 arrays of a block stay in cache.

A stochastic rule draws block by block, so this number is part of what its draws depend on.
"""

State = dict[str, "npt.NDArray[np.floating] | float | int"]


@dataclass(frozen=True)
class Pooled:
    """What pooling gives.

    Attributes:
        posterior: The pooled posterior, in the floating-point types of the clients' vectors.
        diagnostics: What the rule reports about it, by name.
    """

    posterior: Posterior
    diagnostics: dict[str, float]


def _blocks(size: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK))


def _store(values: Array, into: Vector, lowest: float | None = None) -> None:
    """Round values into a view, clipped to its type's finite range and to at least ``lowest``."""
    limit = float(np.finfo(into.dtype).max)
    into[...] = np.clip(values, -limit if lowest is None else lowest, limit)


def _checked(weight: float) -> float:
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"a weight is {weight}; expected a finite number that is not negative")
    return float(weight)


class Accumulator:
    """The sums of a rule's statistics over the clients added so far.

    It holds ``rule.statistics`` float64 vectors (D,), one float64 vector (P,) and a reference mean
    (D,), however many clients are added, and keeps no client's posterior. Accumulators of one rule
    may be merged in any grouping, as in a hierarchy of servers. Sums are rounded, so another order
    or grouping changes the last digits: add in a fixed order where bits matter.

    Args:
        rule: The pooling rule.
        like: A posterior that gives the sizes, the types of the result and, without ``previous``,
            the reference mean around which sums are taken; in general the first client's. It is
            not added.
        previous: The previous global posterior, which gives the reference mean, and which some
            rules use.

    Raises:
        PosteriorError: A posterior is not valid or the two do not go together.
    """

    def __init__(
        self, rule: PoolingRule, like: Posterior, previous: Posterior | None = None
    ) -> None:
        like.check()
        if previous is not None:
            previous.check(like)
        self._begin(rule, (like if previous is None else previous).mean, previous)
        self._types = (like.mean.dtype, like.variance.dtype, like.point.dtype)
        self._sums = np.zeros((rule.statistics, like.size))
        self._point = np.zeros(like.point.size)
        self._totals = Totals()

    def _begin(self, rule: PoolingRule, reference: Vector, previous: Posterior | None) -> None:
        self.rule = rule
        self._reference = np.array(reference)
        self._previous = previous if rule.uses_previous else None

    @property
    def size(self) -> int:
        """The number D of Gaussian parameters."""
        return int(self._reference.size)

    def _check_sizes(self, size: int, point_size: int) -> None:
        if (size, point_size) != (self.size, self._point.size):
            raise PosteriorError(
                f"a posterior has {size} Gaussian and {point_size} point parameters; "
                f"expected {self.size} and {self._point.size}"
            )

    def _block(self, part: slice, generator: np.random.Generator | None = None) -> Block:
        previous = self._previous
        return Block(
            reference=self._reference[part].astype(np.float64),
            previous_mean=None if previous is None else previous.mean[part].astype(np.float64),
            previous_variance=(
                None if previous is None else previous.variance[part].astype(np.float64)
            ),
            generator=generator,
        )

    def add(
        self, posterior: Posterior, weight: float, generator: np.random.Generator | None = None
    ) -> None:
        """Add one client.

        A client of weight 0 takes no part at all, whatever the rule: it is not even looked at.

        Args:
            posterior: The client's posterior; it is read and not kept.
            weight: The client's weight; for a rule whose ``weights_are_fractions``, its fraction of
                all clients' weight.
            generator: The client's own random generator, for a stochastic rule. It is drawn from in
                the order of the parameters.

        Raises:
            PosteriorError: The posterior is not valid or has another size.
            ValueError: The weight is negative or not finite, or a stochastic rule has no generator.
        """
        if not _checked(weight):
            return
        if self.rule.stochastic and generator is None:
            raise ValueError(
                f"{self.rule.name} draws random numbers: it needs one generator per client"
            )
        self._check_sizes(posterior.size, posterior.point.size)
        posterior.check()
        for part in _blocks(self.size):
            mean = posterior.mean[part].astype(np.float64)
            variance = posterior.variance[part].astype(np.float64)
            encoded = self.rule.encode(mean, variance, weight, self._block(part, generator))
            for total, statistic in zip(self._sums, encoded, strict=True):
                total[part] += statistic
        for part in _blocks(self._point.size):
            self._point[part] += weight * posterior.point[part].astype(np.float64)
        self._totals += Totals(1, weight, weight, self.rule.mass(weight))

    def merge(self, other: Accumulator) -> None:
        """Add, in place, all that another accumulator holds; the other is left as it is.

        Its sums may be taken around another reference: they are re-centred exactly. This
        accumulator's reference, types and previous posterior stay.

        Raises:
            PosteriorError: The other is of another size.
            ValueError: The other is of another rule, or of the same rule with other settings.
        """
        if self.rule != other.rule:
            raise ValueError(f"cannot merge {other.rule!r} into {self.rule!r}")
        self._check_sizes(other.size, other._point.size)
        for part in _blocks(self.size):
            shift = other._reference[part].astype(np.float64) - self._reference[part]
            sums = tuple(row[part] for row in other._sums)
            moved = self.rule.recentre(sums, other._totals, shift)
            for total, statistic in zip(self._sums, moved, strict=True):
                total[part] += statistic
        self._point += other._point
        self._totals += other._totals

    def result(self) -> Pooled:
        """Return the pooled posterior of all that was added; more may be added afterwards.

        Variances that the result's type cannot hold are clipped to its smallest normal and its
        largest finite number.

        Raises:
            PosteriorError: Nothing with a positive weight was added, or no valid posterior comes
                out.
        """
        if not self._totals.count:
            raise PosteriorError("nothing to pool: no posterior with a positive weight was added")
        mean_type, variance_type, point_type = self._types
        mean, variance = np.empty(self.size, mean_type), np.empty(self.size, variance_type)
        marked = dict.fromkeys(self.rule.fractions, 0)
        for part in _blocks(self.size):
            sums = tuple(row[part] for row in self._sums)
            decoded = self.rule.decode(sums, self._totals, self._block(part))
            _store(decoded.mean, mean[part])
            _store(decoded.variance, variance[part], float(np.finfo(variance_type).tiny))
            for name, mask in decoded.marks.items():
                marked[name] += int(np.count_nonzero(mask))
        point = np.empty(self._point.size, point_type)
        _store(self._point / self._totals.weight, point)
        posterior = Posterior(mean, variance, point)
        posterior.check()
        return Pooled(posterior, {name: n / max(self.size, 1) for name, n in marked.items()})

    def state(self) -> State:
        """Return everything but the rule and the previous posterior, as arrays and numbers."""
        mean_type, variance_type, point_type = self._types
        return {
            "sums": self._sums.copy(),
            "point": self._point.copy(),
            "reference": self._reference.copy(),
            "count": self._totals.count,
            "weight": self._totals.weight,
            "weight-max": self._totals.weight_max,
            "mass": self._totals.mass,
            "mean-itemsize": mean_type.itemsize,
            "variance-itemsize": variance_type.itemsize,
            "point-itemsize": point_type.itemsize,
        }

    @classmethod
    def from_state(
        cls,
        rule: PoolingRule,
        state: Mapping[str, npt.NDArray[np.floating] | float | int],
        previous: Posterior | None = None,
    ) -> Accumulator:
        """Return the accumulator whose ``state`` this is.

        Args:
            rule: The rule it had.
            state: What ``state`` returned.
            previous: The previous global posterior it had.

        Raises:
            PosteriorError: The previous posterior is of another size.
            ValueError: The state is of a rule with other statistics.
        """
        arrays = {name: np.asarray(state[name]) for name in ("sums", "point", "reference")}
        expected = (rule.statistics, arrays["reference"].size)
        if arrays["sums"].shape != expected:
            raise ValueError(
                f"the state's sums have shape {arrays['sums'].shape}; "
                f"{rule.name} expected {expected}"
            )
        self = cls.__new__(cls)
        self._begin(rule, arrays["reference"], previous)
        self._sums = np.array(arrays["sums"], np.float64)
        self._point = np.array(arrays["point"], np.float64)
        if previous is not None:
            self._check_sizes(previous.size, previous.point.size)
        mean, variance, point = (
            np.dtype(f"f{int(cast(int, state[f'{name}-itemsize']))}")
            for name in ("mean", "variance", "point")
        )
        self._types = (mean, variance, point)
        self._totals = Totals(
            count=int(cast(int, state["count"])),
            weight=float(cast(float, state["weight"])),
            weight_max=float(cast(float, state["weight-max"])),
            mass=float(cast(float, state["mass"])),
        )
        return self


def _normalised(weights: Iterable[float]) -> list[float]:
    checked = [_checked(weight) for weight in weights]
    largest = max(checked, default=0.0)
    if largest == 0:
        raise PosteriorError("nothing to pool: no client has a positive weight")
    # Divided by the largest first, so that the sum can neither overflow nor underflow.
    scaled = [weight / largest for weight in checked]
    total = math.fsum(scaled)
    return [weight / total for weight in scaled]


def pool(
    rule: PoolingRule,
    posteriors: Iterable[Posterior],
    weights: Sequence[float] | npt.NDArray[np.floating],
    *,
    previous: Posterior | None = None,
    generators: Iterable[np.random.Generator] | None = None,
) -> Pooled:
    """Return the pooled posterior of K clients.

    Args:
        rule: The pooling rule.
        posteriors: K posteriors; each is read once, in turn, and let go, so a generator will do.
        weights: K weights in any scale; they are normalised to sum to 1 first.
        previous: The previous global posterior, which some rules use.
        generators: K random generators, one per client, for a stochastic rule.

    Raises:
        PosteriorError: No client has a positive weight, or a posterior is not valid.
        ValueError: A weight is negative or not finite, a stochastic rule has no generators, or
            there are not as many posteriors or generators as weights.
    """
    fractions = _normalised(weights)
    sources = iter(posteriors)
    drawers = None if generators is None else iter(generators)
    accumulator: Accumulator | None = None
    for index, weight in enumerate(fractions):
        posterior = next(sources, None)
        generator = None if drawers is None else next(drawers, None)
        if posterior is None or (drawers is not None and generator is None):
            what = "posteriors" if posterior is None else "generators"
            raise ValueError(f"got {index} {what} for {len(fractions)} weights")
        if weight == 0:
            continue
        if accumulator is None:
            accumulator = Accumulator(rule, posterior, previous)
        accumulator.add(posterior, weight, generator)
    if next(sources, None) is not None:
        raise ValueError(f"got more posteriors than the {len(fractions)} weights")
    assert accumulator is not None, "normalised weights have a positive one"
    return accumulator.result()
