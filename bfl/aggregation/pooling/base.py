"""Base of pooling rules: encode into statistics that can be summed, and decode the sums.

A rule sees one block of parameters at a time, in float64. It turns a client's means and variances
into a few statistics, already multiplied by the client's weight; the accumulator sums them; the
rule turns the sums into the pooled means and variances. That is all a new rule has to say.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bfl.errors import PosteriorError
from bfl.posteriors.posterior import Posterior, Vector, between
from bfl.registry import Component, Registry

Array = npt.NDArray[np.float64]

EPSILON = float(np.finfo(np.float64).eps)
"""The machine epsilon of what is summed."""

CLIPPED = "clipped-fraction"
"""The diagnostic of every rule: the fraction of the Gaussian parameters whose pooled mean or
variance, sound in float64, was clipped to what the result's type can hold."""

DAMPING = "damping"
"""The diagnostic that says which share of the round's step a ``damped`` rule has made."""

DAMPED_FURTHER = "damped-further"
"""The diagnostic that is 1 where that was less than wanted, and 0 otherwise."""


class PoolingRule(Component, ABC):
    """A rule that pools the clients' Gaussian posteriors into one.

    The class attributes declare how the rule behaves. The contract test holds each rule to what it
    declares, so a legitimate exception is stated here and nowhere else.

    Attributes:
        statistics: The number of statistics per parameter.
        uses_weights: Whether the weights matter. Point parameters are averaged with the weights and
            a weight of 0 leaves a client out either way.
        weights_are_fractions: Whether the weights must sum to 1 over all clients when they are
            added (``pool`` sees to that); for any other rule only their proportions matter.
        uses_previous: Whether the previous global posterior changes the result.
        keeps_unrounded: Whether a round has to begin where the one before has ended in float64, and
            not at what was sent of it: rules that add to the previous global posterior, round by
            round, would add up its rounding as well.
        stochastic: Whether encoding draws random numbers.
        damped: Whether only a share of the step that the sums say is made, ``step_share``: one
            number for all parameters, which the diagnostics ``damping`` and ``damped-further``
            report.
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
        """Return a client's statistics, multiplied by its weight.

        Args:
            mean: (B,) means; a copy, which may be changed in place.
            variance: (B,) variances, positive; a copy as well.
            weight: The client's weight, positive.
            block: What else is known about these parameters.

        Returns:
            As many arrays (B,) as ``statistics`` says.
        """

    @abstractmethod
    def decode(self, sums: tuple[Array, ...], totals: Totals, block: Block) -> Decoded:
        """Return the pooled posterior of the clients' summed statistics.

        Args:
            sums: The sums of what ``encode`` returned, arrays (B,), which may be changed in place.
            totals: What was added. Dividing by it makes the scale of the weights irrelevant.
            block: What else is known about these parameters; no generator.
        """

    def step_share(
        self, blocks: Iterable[tuple[tuple[Array, ...], Block]], totals: Totals
    ) -> tuple[float, bool]:
        """Return the share of its step that a ``damped`` rule makes, and if it is below the wanted.

        Args:
            blocks: The arguments ``sums`` and ``block`` of ``decode`` for all parameters.
            totals: What was added.
        """
        return 1.0, False

    def mass(self, weight: float) -> float:
        """Return how much a client counts in the sums: its weight, or 1 without weights."""
        return weight if self.uses_weights else 1.0

    def has(self) -> frozenset[str]:
        """Return whether means are averaged, and whether what is pooled is a sum over clients.

        It is if a client's statistics follow from its posterior and its weight alone: not with
        draws, nor where they depend on which other clients are pooled.
        """
        alone = not (self.stochastic or self.weights_are_fractions)
        averaged = {"averaged-means"} if self.averages_means else set()
        return frozenset(averaged | ({"sums"} if alone else set()))

    def requires(self) -> frozenset[str]:
        """Return that there are Gaussians, unless the rule makes sense without.

        And that no client's likelihood counts what others hold, where a rule multiplies densities.
        """
        own = {"own-likelihood"} if self.multiplies else set()
        return frozenset(own | (set() if self.accepts_points else {"gaussian"}))


pooling_rules: Registry[PoolingRule] = Registry("pooling", "bfl.aggregation.pooling")


@dataclass(frozen=True)
class Block:
    """Context of a block of B parameters that a rule may use besides the clients' posteriors.

    It is read-only, and the same for all clients.

    Attributes:
        reference: (B,) means near the clients'. Statistics of ``mean - reference`` keep the digits
            that statistics of ``mean`` would lose.
        previous_mean: (B,) means of the previous global posterior, when there is one and the rule
            ``uses_previous``.
        previous_variance: (B,) its variances.
        unrounded_mean: (B,) its means as they were pooled, when they are known and the rule
            ``keeps_unrounded``.
        unrounded_variance: (B,) its variances in the same case.
        generator: The client's random generator for this block, while a ``stochastic`` rule
            encodes.
        damping: The share of the round's step that is made, while a ``damped`` rule decodes.
    """

    reference: Array
    previous_mean: Array | None = None
    previous_variance: Array | None = None
    unrounded_mean: Array | None = None
    unrounded_variance: Array | None = None
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

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            count=self.count + other.count,
            weight=self.weight + other.weight,
            weight_max=max(self.weight_max, other.weight_max),
            mass=self.mass + other.mass,
            epsilon=max(self.epsilon, other.epsilon),
        )


@dataclass(frozen=True)
class Decoded:
    """The pooled posterior of a block of B parameters.

    Attributes:
        mean: (B,) means.
        variance: (B,) variances.
        marks: Masks (B,) of the parameters where something happened that the user should hear of;
            the accumulator reports the fraction of all parameters under the same name.
    """

    mean: Array
    variance: Array
    marks: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)


@dataclass(frozen=True)
class Pooled:
    """A pooled posterior, and what is reported of it.

    Attributes:
        posterior: The pooled posterior, in the floating-point types of the clients' vectors.
        diagnostics: The rule's numbers by name, and the ``clipped-fraction``.
        unrounded: The pooled means and variances in float64, before they were rounded to those
            types, without point parameters; None unless the rule ``keeps_unrounded``.
        weights: The clients' weights in their order, with sum 1, where who has pooled says them.
    """

    posterior: Posterior
    diagnostics: dict[str, float]
    weights: tuple[float, ...] = ()
    unrounded: Posterior | None = None


def check_arrays(
    rule: PoolingRule, what: str, arrays: Any, shape: tuple[int, int], kinds: str = "fiu"
) -> None:
    """Refuse what is not as many arrays as the shape's first number, each of the second's size.

    An addition would broadcast it, and take a mask for 0 and 1.

    Raises:
        PosteriorError: Naming the rule, and what it gives.
    """
    if not isinstance(arrays, tuple | list):
        raise PosteriorError(
            f"strategy {rule.name} gives {type(arrays).__name__} as {what}; expected a tuple of "
            f"{shape[0]} arrays"
        )
    given = [np.asarray(array) for array in arrays]
    if len(given) == shape[0] and all(
        array.shape == shape[1:] and array.dtype.kind in kinds for array in given
    ):
        return
    numbers = "masks" if kinds == "b" else "arrays of real numbers"
    found = ", ".join(f"{array.shape} of type {array.dtype}" for array in given)
    raise PosteriorError(
        f"strategy {rule.name} gives {len(given)} {what}: {found or 'none'}; "
        f"expected {shape[0]} {numbers} of shape {shape[1:]}"
    )


def store(rule: PoolingRule, decoded: Decoded, start: int, mean: Vector, variance: Vector) -> int:
    """Round a block's pooled means and variances into views (B,); return how many were clipped.

    What lies outside the finite range of the views' types, or below their smallest normal variance,
    is clipped.

    Args:
        start: The block's first parameter.

    Raises:
        PosteriorError: A shape, a type or a value is wrong, or a mark is not declared.
    """
    if not isinstance(decoded, Decoded):
        raise PosteriorError(
            f"strategy {rule.name} decodes as {type(decoded).__name__}; expected Decoded(mean, "
            "variance)"
        )
    check_arrays(rule, "means and variances", (decoded.mean, decoded.variance), (2, mean.size))
    marks = [*decoded.marks.values()]
    check_arrays(rule, "marks", marks, (len(marks), mean.size), kinds="b")
    if unknown := decoded.marks.keys() - set(rule.fractions):
        raise PosteriorError(
            f"strategy {rule.name} marks parameters as '{unknown.pop()}'; its fractions are "
            f"{', '.join(rule.fractions) or 'none'}"
        )
    most, largest = (float(np.finfo(view.dtype).max) for view in (mean, variance))
    smallest = float(np.finfo(variance.dtype).tiny)
    if between(-most, decoded.mean, most) and between(smallest, decoded.variance, largest):
        mean[...], variance[...] = decoded.mean, decoded.variance
        return 0
    sound = (decoded.variance > 0) & (decoded.variance < math.inf)
    for what, good in (
        ("means that are not finite", np.isfinite(decoded.mean)),
        ("variances that are not positive and finite", sound),
    ):
        if bad := int(mean.size - np.count_nonzero(good)):
            raise PosteriorError(
                f"strategy {rule.name} gives {bad} of {mean.size} {what}, among the parameters "
                f"{start} to {start + mean.size - 1}"
            )
    mean[...] = np.clip(decoded.mean, -most, most)
    variance[...] = np.clip(decoded.variance, smallest, largest)
    outside = np.abs(decoded.mean) > most
    outside |= (decoded.variance < smallest) | (decoded.variance > largest)
    return int(np.count_nonzero(outside))
