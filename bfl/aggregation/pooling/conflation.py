"""Normalised products of the clients' densities: conflation and what is made of it."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from bfl.aggregation.pooling.base import Array, Block, Decoded, PoolingRule, Totals, pooling_rules
from bfl.errors import PosteriorError

NEGATIVE = "negative-precision-fraction"
WIDER = "wider-than-previous-fraction"


@pooling_rules.register("conflation", aliases=("inverse-variance-weighting", "iv"))
class ConflationRule(PoolingRule):
    """The normalised product of the clients' densities, whatever their weights.

    σ² = 1 / Σ 1/σ_k² and μ = σ² Σ μ_k/σ_k². The means enter as μ_k − c around a reference c, which
    changes nothing but the rounding. A client of weight 0 has no factor in the product.

    Source: Fischer et al. (2024), section 2.5.4, equation (15).
    """

    uses_weights: ClassVar[bool] = False
    by_precision: ClassVar[bool] = True

    def encode(
        self, mean: Array, variance: Array, weight: float, block: Block
    ) -> tuple[Array, ...]:
        """Return ω (μ − c)/σ² and ω/σ², arrays (B,), with ω = 1 if weights do not matter."""
        precision = np.divide(self.mass(weight), variance, out=variance)
        mean -= block.reference
        mean *= precision
        return mean, precision

    def variance_numerator(self, totals: Totals) -> float:
        """Return what the summed precision divides to give the variance."""
        return 1.0

    def decode(self, sums: tuple[Array, ...], totals: Totals, block: Block) -> Decoded:
        """Return the precision-weighted mean and the numerator over the precision, arrays (B,)."""
        scaled, precision = sums
        scaled /= precision
        scaled += block.reference
        return Decoded(scaled, np.divide(self.variance_numerator(totals), precision, out=precision))


@pooling_rules.register("weighted-conflation", aliases=("wc", "cf", "conflation-aggregation"))
class WeightedConflationRule(ConflationRule):
    """The normalised product of the clients' densities raised to ω_k / ω_max.

    μ = Σ (ω_k μ_k/σ_k²) / Σ (ω_k/σ_k²) and σ² = ω_max / Σ (ω_k/σ_k²): never wider than the
    posterior of the client with the greatest weight. With equal weights it is conflation.

    Source: Fischer et al. (2024), section 2.5.4, equation (16); Ozer et al. (2022), section 3.5,
    equation (8), as conflation aggregation.
    """

    uses_weights: ClassVar[bool] = True

    def variance_numerator(self, totals: Totals) -> float:
        """Return the greatest weight."""
        return totals.weight_max


@pooling_rules.register("log-linear-pool", aliases=("llp", "log-linear-pooling"))
class LogLinearPoolRule(ConflationRule):
    """The normalised weighted geometric mean of the clients' densities, Π q_k^ω_k.

    μ = Σ (ω_k μ_k/σ_k²) / Σ (ω_k/σ_k²) and σ² = 1 / Σ (ω_k/σ_k²), with Σ ω_k = 1: weighted
    conflation with 1 in the place of ω_max.

    Source: Fischer et al. (2024), section 2.5.4, equation (16) and the text before it, after
    Koliander et al. (2022).
    """

    uses_weights: ClassVar[bool] = True

    def variance_numerator(self, totals: Totals) -> float:
        """Return the sum of the weights."""
        return totals.weight


@pooling_rules.register("distributed-weight-consolidation", aliases=("dwc",))
class DistributedWeightConsolidationRule(ConflationRule):
    """The product of the clients' densities divided by K − 1 times the previous global density.

    σ² = 1 / (Σ 1/σ_k² − (K−1)/σ_o²) and μ = σ² (Σ μ_k/σ_k² − (K−1) μ_o/σ_o²), with N(μ_o, σ_o²)
    the previous global posterior, which every client used as its prior and which is to count once.
    It is exact for Bayesian updates of one prior on disjoint data. K is the number of clients with
    a positive weight.

    Chosen where the papers are silent: a difference of precisions that is not positive, or so small
    that rounding could have made it, belongs to no Gaussian; ``negative-precision`` says what
    happens to such a parameter, and the diagnostic ``negative-precision-fraction`` how many there
    were. Rounding is that of the types in which variances arrive: each is off by up to ε/2 of
    itself, so where the two terms nearly cancel their difference is off by up to ε Σ 1/σ_k², and
    what is at most K ε Σ 1/σ_k² has no sign. The diagnostic ``wider-than-previous-fraction`` is the
    share of parameters whose pooled variance is greater than the previous one: there the clients
    have unlearned, and a mean may lie far from all of theirs. Without a previous posterior there is
    nothing to divide by and the rule is conflation.

    Source: Fischer et al. (2024), section 2.5.5, equation (17), after McClure et al. (2018).
    """

    uses_previous: ClassVar[bool] = True
    fractions: ClassVar[tuple[str, ...]] = (NEGATIVE, WIDER)

    negative_precision: Literal["conflation", "error"] = Field(
        "conflation",
        description="what becomes of a parameter whose pooled precision is not positive: "
        "conflation pools it without regard to the previous posterior, error ends the run",
    )

    def decode(self, sums: tuple[Array, ...], totals: Totals, block: Block) -> Decoded:
        """Return conflation with the previous precision taken off K − 1 times, arrays (B,).

        Raises:
            PosteriorError: The precision of a parameter is not positive, and the policy is error.
        """
        if block.previous_mean is None or block.previous_variance is None:
            return super().decode(sums, totals, block)
        scaled, precision = sums
        surplus, work = block.spare
        np.divide(totals.count - 1, block.previous_variance, out=surplus)
        # A difference within the rounding of its terms has no sign: it counts as not positive.
        rounding = np.multiply(totals.count * totals.epsilon, precision, out=work)
        unusable = ~(precision - surplus > rounding)
        self._refuse(int(np.count_nonzero(unusable)))
        np.copyto(surplus, 0.0, where=unusable)  # leaves conflation
        precision -= surplus
        offset = np.subtract(block.previous_mean, block.reference, out=work)
        scaled -= np.multiply(surplus, offset, out=work)
        pooled = super().decode((scaled, precision), totals, block)
        wider = pooled.variance > np.multiply(1 + totals.epsilon, block.previous_variance, out=work)
        return Decoded(pooled.mean, pooled.variance, {NEGATIVE: unusable, WIDER: wider})

    def _refuse(self, count: int) -> None:
        if count and self.negative_precision == "error":
            raise PosteriorError(
                f"the pooled precision is not positive for at least {count} parameters: the "
                "clients' variances are too large compared with the previous global ones; "
                'negative-precision = "conflation" pools such parameters by conflation'
            )
