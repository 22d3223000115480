"""Partitioned variational inference on the server: clients' factors change, damped as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from pydantic import Field

from bfl.aggregation.pooling.base import (
    Array,
    Block,
    Decoded,
    Moments,
    PoolingRule,
    Totals,
    pooling_rules,
)
from bfl.posteriors.posterior import greatest_step

LEAST_PRECISION_SHARE = 0.1  # of its precision that a round leaves every parameter


@pooling_rules.register("factor-changes")
class FactorChangesRule(PoolingRule):
    """The previous global posterior with a share ρ of each client's change of it added.

    With η = (Λμ, Λ) the natural parameters, q the previous global posterior and q_k what client k
    has made of it: η ← η(q) + ρ Σ (η(q_k) − η(q)). If the clients keep factors t_k with
    q = p Π t_k, and multiply theirs by (q_k/q)^ρ, q stays the product of the prior and all factors.
    Weights play no part: how much a client knows is in its q_k.

    The share ρ is ``damping``; 0 stands for 1 over the number of clients of the round. Where it
    would leave some parameter less than a tenth of its precision, the whole round's step is damped
    until it does not: one number for all parameters and all clients, since no parameter's factors
    may be mended by themselves. The diagnostics are ``damping``, the ρ that was taken, and
    ``damped-further``, 1 in a round in which that was less than what is set.

    Between rounds q is kept in float64, since changes are added to it. Clients are sent q rounded
    and measure their changes from there, so a cavity is off by one rounding of q.

    Undamped and from factors that say nothing yet, as in the first round, it is distributed weight
    consolidation. Without a previous posterior there is nothing that changes: η ← ρ Σ η(q_k).

    Source: Bui et al. (2018), "Partitioned variational inference", Algorithm 1 and section 2.2;
    Ashman et al. (2022), Algorithm 1 (synchronous, with damping).
    """

    uses_weights: ClassVar[bool] = False
    uses_previous: ClassVar[bool] = True
    keeps_unrounded: ClassVar[bool] = True
    damped: ClassVar[bool] = True

    damping: float = Field(1.0, ge=0.0, le=1.0)
    """share of the clients' changes that a round makes; 0: 1 over its clients"""

    def has(self) -> frozenset[str]:
        """Return that factors change."""
        return super().has() | {"factors"}

    def requires(self) -> frozenset[str]:
        """Return what q = p Π t_k rests on: clients that keep their factors out of their prior."""
        return super().requires() | {"cavity", "weights-by-counts"}

    def excludes(self) -> frozenset[str]:
        """Return what would break q = p Π t_k on the server."""
        moved = {"changed-updates", "raised-variances", "moved-pool", "refined-pool"}
        return frozenset({"pre-training", "given-start", *moved})

    def encode(
        self, mean: Array, variance: Array, weight: float, block: Block
    ) -> tuple[Array, ...]:
        """Return the change of Λ(μ − c), with c the reference, and of Λ, arrays (B,)."""
        scaled, precision = _natural(Moments(mean, variance), block)
        previous_scaled, previous = _natural(block.previous, block)
        return scaled - previous_scaled, precision - previous

    def step_share(
        self, blocks: Iterable[tuple[tuple[Array, ...], Block]], totals: Totals
    ) -> tuple[float, bool]:
        """Return ρ as it is set, or the greatest that leaves every parameter enough precision."""
        wanted = self.damping or 1.0 / totals.count
        steps = (
            greatest_step(_previous(block)[1], sums[1], LEAST_PRECISION_SHARE)
            for sums, block in blocks
        )
        share = min((wanted, *steps))
        return share, share < wanted

    def decode(self, sums: tuple[Array, ...], totals: Totals, block: Block) -> Decoded:
        """Return the previous posterior with the share of the changes added, arrays (B,)."""
        scaled, precision = _previous(block)
        precision = precision + block.damping * sums[1]
        shift = (scaled + block.damping * sums[0]) / precision
        return Decoded(block.reference + shift, 1.0 / precision)


def _natural(moments: Moments | None, block: Block) -> tuple[Array, Array]:
    """Return Λ(μ − c) and Λ, (B,) each; 0 without any."""
    if moments is None:
        nothing = np.zeros_like(block.reference)
        return nothing, nothing
    precision = 1.0 / moments.variance
    return precision * (moments.mean - block.reference), precision


def _previous(block: Block) -> tuple[Array, Array]:
    """Return Λ(μ − c) and Λ of the previous posterior as it was pooled, (B,) each."""
    return _natural(block.unrounded or block.previous, block)
