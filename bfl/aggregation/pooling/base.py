"""Pooling rules, and the one algorithm of all: encode each client, sum, decode the sums.

A rule encodes a posterior into statistics that can be summed, and decodes the sums. Parameters are
taken block by block, so that a block's arrays stay in the processor's cache. For every parameter
the clients are added one by one, in their order, in float64: blocks do not change a bit of the
result.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from bfl.errors import ConfigurationError, PosteriorError
from bfl.posteriors.posterior import Posterior, Vector
from bfl.registry import Component, Registry

Array = npt.NDArray[np.float64]

EPSILON = float(np.finfo(np.float64).eps)
"""The machine epsilon of what is summed."""

BLOCK = 131072
"""Parameters taken at a time: few enough for a dozen float64 arrays to stay in cache.

A stochastic rule draws block by block, so this number is part of what its draws depend on.
"""

CLIPPED_FRACTION = "clipped-fraction"
"""The diagnostic of every rule: the fraction of the Gaussian parameters whose pooled mean or
variance, sound in float64, was clipped to what the result's type can hold."""

DAMPING = "damping"
"""The diagnostic that says which share of the round's step a ``damped`` rule has made."""

DAMPED_FURTHER = "damped-further"
"""The diagnostic that is 1 where that was less than wanted, and 0 otherwise."""


class PoolingRule(Component, ABC):
    """A rule that pools the clients' Gaussian posteriors into one.

    The class attributes declare how the rule behaves, and the contract test holds it to them.

    Attributes:
        statistics: The number of statistics per parameter.
        uses_weights: Whether the weights matter. Point parameters are averaged with the weights and
            a weight of 0 leaves a client out either way.
        weights_are_fractions: Whether the weights must sum to 1 over all clients when they are
            added (``pool`` sees to that); for any other rule only their proportions matter.
        uses_previous: Whether the previous global posterior changes the result.
        keeps_unrounded: Whether a round begins where the one before has ended in float64, and not
            at what was sent of it: a rule that adds to the previous global posterior, round by
            round, would add up its rounding as well.
        stochastic: Whether encoding draws random numbers.
        damped: Whether only a share of the step that the sums say is made, ``step_share``.
        by_precision: Whether means are weighted by clients' precisions, so that each round says how
            much these differ (``bfl.evaluation.precision_spread``).
        multiplies: Whether densities are multiplied, so that what several clients count counts
            several times.
        averages_means: Whether the pooled means are the weighted averages of the clients' means.
        accepts_points: Whether the rule makes sense for networks whose parameters are all points.
        fractions: The names of the marks that ``decode`` gives.
    """

    statistics: ClassVar[int] = 2
    uses_weights: ClassVar[bool] = True
    weights_are_fractions: ClassVar[bool] = False
    uses_previous: ClassVar[bool] = False
    keeps_unrounded: ClassVar[bool] = False
    stochastic: ClassVar[bool] = False
    damped: ClassVar[bool] = False
    by_precision: ClassVar[bool] = False
    multiplies: ClassVar[bool] = False
    averages_means: ClassVar[bool] = False
    accepts_points: ClassVar[bool] = False
    fractions: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def encode(
        self, mean: Array, variance: Array, weight: float, block: Block
    ) -> tuple[Array, ...]:
        """Return a client's statistics, multiplied by its weight: ``statistics`` arrays (B,)."""

    @abstractmethod
    def decode(self, sums: tuple[Array, ...], totals: Totals, block: Block) -> Decoded:
        """Return the pooled posterior of summed statistics, (B,), in any scale of the weights."""

    def step_share(
        self, blocks: Iterable[tuple[tuple[Array, ...], Block]], totals: Totals
    ) -> tuple[float, bool]:
        """Return the share of the step that is made of all blocks, and if more was wanted."""
        return 1.0, False

    def mass(self, weight: float) -> float:
        """Return how much a client counts in the sums: its weight, or 1 without weights."""
        return weight if self.uses_weights else 1.0

    def has(self) -> frozenset[str]:
        """Return whether means are averaged, and whether clients' statistics are theirs alone."""
        alone = not (self.stochastic or self.weights_are_fractions)
        averaged = {"averaged-means"} if self.averages_means else set()
        return frozenset(averaged | ({"sums"} if alone else set()))

    def requires(self) -> frozenset[str]:
        """Return that there are Gaussians, and that multiplied densities are of own data."""
        own = {"own-likelihood"} if self.multiplies else set()
        return frozenset(own | (set() if self.accepts_points else {"gaussian"}))


pooling_rules: Registry[PoolingRule] = Registry("pooling", "bfl.aggregation.pooling")


class Moments(NamedTuple):
    """Means and variances of Gaussians, (B,) each."""

    mean: Array
    variance: Array


@dataclass(frozen=True)
class Block:
    """Facts of B parameters for a rule, besides the clients' posteriors; all arrays are read-only.

    Attributes:
        reference: (B,) means near the clients'. Statistics of ``mean - reference`` keep the digits
            that statistics of ``mean`` would lose.
        previous: The previous global posterior as clients were sent it, when there is one and the
            rule ``uses_previous``.
        unrounded: The same as it was pooled, when it is known and the rule ``keeps_unrounded``.
        generator: The client's random generator for this block, while a ``stochastic`` rule
            encodes.
        damping: The share of the round's step that is made, while a ``damped`` rule decodes.
    """

    reference: Array
    previous: Moments | None = None
    unrounded: Moments | None = None
    generator: np.random.Generator | None = None
    damping: float = 1.0


@dataclass(frozen=True)
class Totals:
    """Totals over the clients that were added, the same for all parameters.

    Attributes:
        count: The number of clients with a positive weight.
        weight: The sum of their weights.
        weight_max: The greatest of their weights.
        mass: The sum of ``PoolingRule.mass`` of their weights.
        epsilon: The machine epsilon of the coarsest type in which a mean or a variance arrived,
            the previous posterior's among them.
    """

    count: int = 0
    weight: float = 0.0
    weight_max: float = 0.0
    mass: float = 0.0
    epsilon: float = EPSILON


@dataclass(frozen=True)
class Decoded:
    """The pooled posterior of B parameters; ``marks`` (B,) go by the names of ``fractions``."""

    mean: Array
    variance: Array
    marks: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)


@dataclass(frozen=True)
class Pooled:
    """A pooled posterior, and what is reported of it.

    Attributes:
        posterior: In the floating-point types of the clients' vectors.
        diagnostics: The rule's numbers by name, and the ``clipped-fraction``.
        unrounded: The pooled means and variances in float64, before they were rounded to those
            types, without point parameters; None unless the rule ``keeps_unrounded``.
    """

    posterior: Posterior
    diagnostics: dict[str, float]
    unrounded: Posterior | None = None


def pool(
    rule: PoolingRule,
    posteriors: Iterable[Posterior],
    weights: Sequence[float] | npt.NDArray[np.floating],
    *,
    previous: Posterior | None = None,
    unrounded: Posterior | None = None,
    generators: Iterable[np.random.Generator] | None = None,
) -> Pooled:
    """Return the pooled posterior of K clients.

    Args:
        posteriors: K posteriors; each is read once and let go, so memory does not grow with K.
        weights: K weights in any scale; they are normalised to sum to 1 first.
        previous: The previous global posterior, which some rules use.
        unrounded: The same as it was pooled, in float64, which rules that ``keeps_unrounded`` use.
        generators: K random generators, one per client, for a stochastic rule.

    Raises:
        PosteriorError: No client has a positive weight, or a posterior is not valid.
        ValueError: A weight is negative or not finite, a stochastic rule has no generators, or
            there are not as many posteriors or generators as weights.

    Example:
        >>> from bfl.aggregation.pooling import pool, pooling_rules
        >>> one, other = (Posterior(np.array([m]), np.array([v])) for m, v in ((0, 1), (3, 0.5)))
        >>> pool(pooling_rules.create("conflation"), [one, other], [1, 1]).posterior.mean
        array([2.])
    """
    fractions = normalise(weights)
    drawers = repeat(None, len(fractions)) if generators is None else generators
    sums: Sums | None = None
    for posterior, weight, generator in zip(posteriors, fractions, drawers, strict=True):
        if weight:
            sums = sums or Sums(rule, posterior, previous, unrounded)
            sums.add(posterior, weight, generator)
        del posterior  # before the next one comes
    assert sums  # some weight is positive
    return sums.pool()


def normalise(weights: Iterable[float]) -> list[float]:
    """Return weights in proportion to those given, with sum 1; errors are those of ``pool``."""
    given = [float(weight) for weight in weights]
    if wrong := [weight for weight in given if not (math.isfinite(weight) and weight >= 0)]:
        raise ValueError(f"a weight is {wrong[0]}; expected a finite number that is not negative")
    largest = max(given, default=0.0)
    if largest == 0:
        raise PosteriorError("nothing to pool: no client has a positive weight")
    # Divided by the largest first, so that the sum can neither overflow nor underflow.
    scaled = [weight / largest for weight in given]
    total = math.fsum(scaled)
    return [weight / total for weight in scaled]


class Sums:
    """Sums of a rule's statistics over clients: ``add`` them, then ``pool``.

    Args:
        like: A posterior that gives the sizes, the types of the result and, without ``previous``,
            the reference mean around which sums are taken. It is not added.

    Attributes:
        statistics: (S, D) sums of the rule's statistics.
        point: (P,) sums of the point parameters times the weights.
        totals: What was added, all parameters alike.

    Raises:
        PosteriorError: The previous posterior is not valid, or has other sizes.
    """

    def __init__(
        self,
        rule: PoolingRule,
        like: Posterior,
        previous: Posterior | None = None,
        unrounded: Posterior | None = None,
    ) -> None:
        if previous is not None:
            previous.check(like)
        if unrounded is not None and unrounded.size != like.size:
            raise PosteriorError(
                f"the previous posterior, as it was pooled, has {unrounded.size} Gaussian "
                f"parameters; expected {like.size}"
            )
        self.rule = rule
        self.size, self.types = like.size, [v.dtype for v in (like.mean, like.variance, like.point)]
        self.parts = [slice(n, min(n + BLOCK, self.size)) for n in range(0, self.size, BLOCK)]
        # A client's own mean is copied: the client is let go.
        self.reference = previous.mean if previous else like.mean.copy()
        self.previous = previous if rule.uses_previous else None
        self.unrounded = unrounded if self.previous and rule.keeps_unrounded else None
        self.statistics: Array = np.zeros((rule.statistics, self.size))
        self.point: Array = np.zeros(like.point.size)
        self.totals = Totals(epsilon=_epsilon(self.previous) if self.previous else EPSILON)

    def add(
        self, posterior: Posterior, weight: float, generator: np.random.Generator | None = None
    ) -> None:
        """Add a client of positive weight; a PosteriorError if a value is not valid."""
        rule, key = self.rule, 0
        posterior.check_form(self.size, self.point.size)
        posterior.check()
        self.point += weight * posterior.point.astype(np.float64)
        self.count(posterior, weight)
        if rule.stochastic:
            if generator is None:
                raise ValueError(f"{rule.name} draws at random: it needs one generator per client")
            key = int.from_bytes(generator.bytes(16), "little")
        for part in self.parts:
            block = self._block(part)
            if rule.stochastic:
                # SFC64 because it is NumPy's fastest, and here it is what the time goes into.
                seed = np.random.SeedSequence(key, spawn_key=(part.start // BLOCK,))
                block = replace(block, generator=np.random.Generator(np.random.SFC64(seed)))
            mean, variance = (
                v[part].astype(np.float64) for v in (posterior.mean, posterior.variance)
            )
            encoded = rule.encode(mean, variance, weight, block)
            _check_arrays(rule, "statistics", encoded, rule.statistics, mean.size)
            for total, statistic in zip(self.statistics, encoded, strict=True):
                total[part] += statistic

    def count(self, like: Posterior, weight: float) -> None:
        """Add a client of positive weight to the totals, but not to the sums."""
        before = self.totals
        self.totals = Totals(
            count=before.count + 1,
            weight=before.weight + weight,
            weight_max=max(before.weight_max, weight),
            mass=before.mass + self.rule.mass(weight),
            epsilon=max(before.epsilon, _epsilon(like)),
        )

    def pool(self) -> Pooled:
        """Return the pooled posterior; a PosteriorError if the rule gives what is none."""
        rule = self.rule
        step: dict[str, float] = {}
        if rule.damped:
            blocks = ((self._sums(part), self._block(part)) for part in self.parts)
            share, less = rule.step_share(blocks, self.totals)
            step = {DAMPING: share, DAMPED_FURTHER: float(less)}
        mean, variance = (np.empty(self.size, dtype) for dtype in self.types[:2])
        exact = None
        if rule.keeps_unrounded:
            exact = Posterior(np.empty(self.size), np.empty(self.size), np.empty(0))
        most, largest, most_point = (float(np.finfo(dtype).max) for dtype in self.types)
        smallest = float(np.finfo(variance.dtype).tiny)
        marked = dict.fromkeys((*rule.fractions, CLIPPED_FRACTION), 0)
        for part in self.parts:
            block = replace(self._block(part), damping=step.get(DAMPING, 1.0))
            decoded = rule.decode(self._sums(part), self.totals, block)
            _check_decoded(rule, decoded, part)
            inside = np.clip(decoded.mean, -most, most)
            positive = np.clip(decoded.variance, smallest, largest)
            clipped = (inside != decoded.mean) | (positive != decoded.variance)
            for name, mask in {**decoded.marks, CLIPPED_FRACTION: clipped}.items():
                marked[name] += int(np.count_nonzero(mask))
            mean[part], variance[part] = inside, positive
            if exact:
                exact.mean[part], exact.variance[part] = decoded.mean, decoded.variance
        fractions = {name: count / max(self.size, 1) for name, count in marked.items()}
        # An average lies among its inputs; rounding may carry it beyond the greatest number.
        point = np.clip(self.point / self.totals.weight, -most_point, most_point)
        posterior = Posterior(mean, variance, point.astype(self.types[2]))
        return Pooled(posterior, {**fractions, **step}, unrounded=exact)

    def _sums(self, part: slice) -> tuple[Array, ...]:
        return tuple(self.statistics[:, part].copy())

    def _block(self, part: slice) -> Block:
        def cut(vector: Vector) -> Array:
            values = vector[part].astype(np.float64)
            # What one client's encoding wrote there, the next one's would take for known.
            values.flags.writeable = False
            return values

        def moments(posterior: Posterior | None) -> Moments | None:
            return Moments(cut(posterior.mean), cut(posterior.variance)) if posterior else None

        return Block(cut(self.reference), moments(self.previous), moments(self.unrounded))


class Statistics(NamedTuple):
    """Sums over clients: of the rule's statistics, (S, D), and of weighted points, (P,)."""

    gaussian: Array
    point: Array


def client_statistics(
    rule: PoolingRule, posterior: Posterior, weight: float, previous: Posterior
) -> Statistics:
    """Return what a client adds to sums around the previous mean; 0 of a weight of 0."""
    sums = Sums(rule, previous, previous)
    if weight:
        sums.add(posterior, weight)
    return Statistics(sums.statistics, sums.point)


def pool_statistics(
    rule: PoolingRule,
    statistics: Statistics,
    weights: Sequence[float],
    previous: Posterior,
    unrounded: Posterior | None = None,
) -> Pooled:
    """Return the pooled posterior of statistics, summed with weights, in the previous types."""
    sums = Sums(rule, previous, previous, unrounded)
    sums.statistics, sums.point = statistics
    for weight in filter(None, weights):
        sums.count(previous, weight)
    if not sums.totals.count:
        raise PosteriorError("nothing to pool: no client has a positive weight")
    return sums.pool()


def _check_decoded(rule: PoolingRule, decoded: Any, part: slice) -> None:
    """Refuse what is no posterior of a block: nothing wrong is mended in silence."""
    if not isinstance(decoded, Decoded):
        raise PosteriorError(
            f"strategy {rule.name} decodes as {type(decoded).__name__}; expected Decoded(mean, "
            "variance)"
        )
    size = part.stop - part.start
    _check_arrays(rule, "means and variances", (decoded.mean, decoded.variance), 2, size)
    sound = (decoded.variance > 0) & (decoded.variance < math.inf)
    for what, good in (
        ("means that are not finite", np.isfinite(decoded.mean)),
        ("variances that are not positive and finite", sound),
    ):
        if bad := int(size - np.count_nonzero(good)):
            raise PosteriorError(
                f"strategy {rule.name} gives {bad} of {size} {what}, among the parameters "
                f"{part.start} to {part.stop - 1}"
            )


def check_rule(rule: PoolingRule) -> None:
    """Refuse a rule that cannot pool two small posteriors: ConfigurationError."""
    previous, *clients = (
        Posterior(np.array([mean, 0.5, -mean]), np.array([variance, 0.4, 2 * variance]))
        for mean, variance in ((0.2, 1.0), (0.3, 0.5), (0.1, 0.7))
    )
    generators = [np.random.default_rng(seed) for seed in range(len(clients))]
    kept = {"previous": previous, "unrounded": previous}
    try:
        pool(rule, clients, [1.0, 2.0], generators=generators, **kept)
    except PosteriorError as error:
        raise ConfigurationError(f"{error} (tried with two posteriors)") from error


def _check_arrays(rule: PoolingRule, what: str, arrays: Any, count: int, size: int) -> None:
    """Refuse anything but so many arrays (size,): a sum would broadcast it, or take a mask as 1."""
    given = [np.asarray(array) for array in arrays] if isinstance(arrays, tuple | list) else []
    if len(given) == count and all(a.shape == (size,) and a.dtype.kind in "fiu" for a in given):
        return
    found = ", ".join(f"{array.shape} of type {array.dtype}" for array in given)
    raise PosteriorError(
        f"strategy {rule.name} gives {len(given)} {what}: {found or type(arrays).__name__}; "
        f"expected {count} arrays of real numbers of shape ({size},)"
    )


def _epsilon(posterior: Posterior) -> float:
    """Return the machine epsilon of the coarser of the types of mean and variance."""
    return max(float(np.finfo(v.dtype).eps) for v in (posterior.mean, posterior.variance))
