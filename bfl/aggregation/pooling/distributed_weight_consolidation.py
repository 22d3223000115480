"""Distributed weight consolidation: conflation with the common prior counted once."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from bfl.aggregation.pooling.base import Array, Block, Decoded, Totals, pooling_rules
from bfl.aggregation.pooling.conflation import ConflationRule

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
