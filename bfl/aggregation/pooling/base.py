"""Base of pooling rules: encode into statistics that can be summed, and decode the sums.

A rule sees one block of parameters at a time, in float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from bfl.posteriors.posterior import Posterior
from bfl.registry import Component, Registry

Array = npt.NDArray[np.float64]

EPSILON = float(np.finfo(np.float64).eps)
"""The machine epsilon of what is summed."""

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
            much these differ (``bfl.aggregation.precision_spread``).
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

    def with_client(self, weight: float, mass: float, epsilon: float) -> Totals:
        """Return the totals with a client more."""
        return Totals(
            count=self.count + 1,
            weight=self.weight + weight,
            weight_max=max(self.weight_max, weight),
            mass=self.mass + mass,
            epsilon=max(self.epsilon, epsilon),
        )


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
