"""Products of the clients' densities: conflation, its weighted kin, and consolidation."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bfl.aggregation.pooling.base import Array, Block, Decoded, PoolingRule, Totals, pooling_rules


@pooling_rules.register("conflation", aliases=("inverse-variance-weighting", "iv"))
class ConflationRule(PoolingRule):
    """The normalised product of the clients' densities, whatever their weights.

    σ² = 1 / Σ 1/σ_k² and μ = σ² Σ μ_k/σ_k². The means enter as μ_k − c around a reference c, which
    changes nothing but the rounding. A client of weight 0 has no factor in the product.

    Source: Fischer et al. (2024), section 2.5.4, equation (15).
    """

    uses_weights: ClassVar[bool] = False
    by_precision: ClassVar[bool] = True
    multiplies: ClassVar[bool] = True

    def encode(
        self, mean: Array, variance: Array, weight: float, block: Block
    ) -> tuple[Array, ...]:
        """Return ω (μ − c)/σ² and ω/σ², arrays (B,), with ω = 1 if weights do not matter."""
        precision = self.mass(weight) / variance
        return precision * (mean - block.reference), precision

    def variance_numerator(self, totals: Totals) -> float:
        """Return what the summed precision divides to give the variance."""
        return 1.0

    def decode(self, sums: tuple[Array, ...], totals: Totals, block: Block) -> Decoded:
        """Return the precision-weighted mean and the numerator over the precision, arrays (B,)."""
        scaled, precision = sums
        mean = block.reference + scaled / precision
        return Decoded(mean, self.variance_numerator(totals) / precision)


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
    multiplies: ClassVar[bool] = False

    def has(self) -> frozenset[str]:
        """Return that natural parameters are averaged."""
        return super().has() | {"averaged-precisions"}

    def variance_numerator(self, totals: Totals) -> float:
        """Return the sum of the weights."""
        return totals.weight


NEGATIVE = "negative-precision-fraction"
WIDER = "wider-than-previous-fraction"


@pooling_rules.register("distributed-weight-consolidation", aliases=("dwc",))
class DistributedWeightConsolidationRule(ConflationRule):
    """The product of the clients' densities divided by K − 1 times the previous global density.

    σ² = 1 / (Σ 1/σ_k² − (K−1)/σ_o²) and μ = σ² (Σ μ_k/σ_k² − (K−1) μ_o/σ_o²), with N(μ_o, σ_o²)
    the previous global posterior, which every client used as its prior and which is to count once.
    It is exact for Bayesian updates of one prior on disjoint data. K is the number of clients with
    a positive weight.

    Chosen where the papers are silent: a difference of precisions that is not positive, or at most
    K ε Σ 1/σ_k², as rounding could have made it, belongs to no Gaussian. Conflation pools such a
    parameter without regard to the previous posterior, and the diagnostic
    ``negative-precision-fraction`` says how many there were. ``wider-than-previous-fraction`` is
    the share of parameters whose pooled variance is greater than the previous one: there the
    clients have unlearned. Without a previous posterior the rule is conflation.

    Source: Fischer et al. (2024), section 2.5.5, equation (17), after McClure et al. (2018).
    """

    uses_previous: ClassVar[bool] = True
    always_excludes: ClassVar[frozenset[str]] = frozenset({"fitted-variances"})
    fractions: ClassVar[tuple[str, ...]] = (NEGATIVE, WIDER)

    def decode(self, sums: tuple[Array, ...], totals: Totals, block: Block) -> Decoded:
        """Return conflation with the previous precision taken off K − 1 times, arrays (B,)."""
        previous = block.previous
        if previous is None:
            return super().decode(sums, totals, block)
        scaled, precision = sums
        surplus = (totals.count - 1) / previous.variance
        # A difference within the rounding of its terms has no sign: it counts as not positive.
        rounding = totals.count * totals.epsilon * precision
        unusable = ~(precision - surplus > rounding)
        surplus = np.where(unusable, 0.0, surplus)  # leaves conflation
        scaled = scaled - surplus * (previous.mean - block.reference)
        pooled = super().decode((scaled, precision - surplus), totals, block)
        wider = pooled.variance > (1 + totals.epsilon) * previous.variance
        return Decoded(pooled.mean, pooled.variance, {NEGATIVE: unusable, WIDER: wider})
