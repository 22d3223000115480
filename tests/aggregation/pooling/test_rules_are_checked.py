"""What a rule gives is checked like what a client sends: nothing wrong is mended without a word."""

import math
from collections.abc import Callable
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
import pytest

from bfl.aggregation.pooling import PoolingRule, pool
from bfl.aggregation.pooling.averages import NaiveWeightedAveragingRule
from bfl.aggregation.pooling.base import Array, Block, Decoded, Totals
from bfl.errors import PosteriorError
from bfl.posteriors import Posterior

Change = Callable[[Decoded], Any]
D = 100


def clients(size: int = D) -> list[Posterior]:
    rng = np.random.default_rng(1)
    return [
        Posterior(
            rng.standard_normal(size, np.float32), rng.uniform(0.1, 1, size).astype(np.float32)
        )
        for _ in range(3)
    ]


def rule_that(change: Change) -> PoolingRule:
    """Return averaging of which the result is changed, block by block."""

    class Wrong(NaiveWeightedAveragingRule):
        name: ClassVar[str] = "wrong-rule"

        def decode(self, sums: tuple[Array, ...], totals: Totals, block: Block) -> Decoded:
            decoded: Decoded = change(super().decode(sums, totals, block))
            return decoded

    return Wrong()


def encoding(change: Callable[[tuple[Array, ...]], Any]) -> PoolingRule:
    class Wrong(NaiveWeightedAveragingRule):
        name: ClassVar[str] = "wrong-rule"

        def encode(
            self, mean: Array, variance: Array, weight: float, block: Block
        ) -> tuple[Array, ...]:
            encoded: tuple[Array, ...] = change(super().encode(mean, variance, weight, block))
            return encoded

    return Wrong()


@pytest.mark.parametrize("value", [-1.0, -1e-300, 0.0, math.nan, math.inf, -math.inf])
def test_variances_that_are_none_are_refused_in_the_first_block_that_has_some(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bfl.aggregation.pooling.base.BLOCK", 16)

    def change(decoded: Decoded) -> Decoded:
        if decoded.mean.size < 16:  # the last four
            decoded.variance[:3] = value
        return decoded

    with pytest.raises(PosteriorError, match=r"wrong-rule .*3 of 4 variances.* 96 to 99"):
        pool(rule_that(change), clients(), np.ones(3))


@pytest.mark.parametrize(
    "rule",
    [
        rule_that(lambda d: Decoded(d.mean[:1], d.variance)),
        rule_that(lambda d: Decoded(d.mean, d.variance[:, None])),
        rule_that(lambda d: Decoded(d.mean, 1.0)),  # type: ignore[arg-type]
        # NumPy would drop imaginary parts, and take a mask for 0 and 1.
        rule_that(lambda d: Decoded(d.mean + 1j, d.variance)),
        rule_that(lambda d: Decoded(d.mean, d.variance + 1j)),
        rule_that(lambda d: Decoded(d.mean, d.variance > 0)),
        rule_that(lambda d: (d.mean, d.variance)),
        encoding(lambda e: (*e, e[0])),
        encoding(lambda e: e[:1]),
        encoding(lambda e: (e[0], e[1][:1])),
        encoding(lambda e: (e[0], 1.0)),
        encoding(lambda e: (e[0], e[1] > 0)),
        encoding(lambda e: (e[0] + 1j, e[1])),
        encoding(lambda e: None),
    ],
)
def test_what_is_no_pool_is_refused_by_the_name_of_its_rule(rule: PoolingRule) -> None:
    with pytest.raises(PosteriorError, match="wrong-rule"):
        pool(rule, clients(), np.ones(3))


@pytest.mark.parametrize("known", ["reference", "previous.mean", "previous.variance"])
def test_what_is_known_is_not_overwritten(known: str) -> None:
    """One that used it for room of its own gave the next clients another reference."""

    class Careless(NaiveWeightedAveragingRule):
        uses_previous: ClassVar[bool] = True

        def encode(
            self, mean: Array, variance: Array, weight: float, block: Block
        ) -> tuple[Array, ...]:
            encoded = super().encode(mean, variance, weight, block)
            np.multiply(2.0, mean, out=attrgetter(known)(block))
            return encoded

    with pytest.raises(ValueError, match="read-only"):
        pool(Careless(), clients(), np.ones(3), previous=clients()[0])


def test_what_float32_cannot_hold_is_clipped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bfl.aggregation.pooling.base.BLOCK", 16)
    limit = np.finfo(np.float32)

    def change(decoded: Decoded) -> Decoded:
        if decoded.mean.size < 16:  # the last four
            decoded.variance[0] = 1e-60
            decoded.variance[1] = 1e60
            decoded.mean[1] = -1e60
        return decoded

    pooled = pool(rule_that(change), clients(), np.ones(3))
    assert pooled.posterior.variance[96] == limit.tiny
    assert pooled.posterior.variance[97] == limit.max
    assert pooled.posterior.mean[97] == -limit.max
    assert pooled.diagnostics["clipped-fraction"] == 0.02
    assert pool(rule_that(lambda d: d), clients(), np.ones(3)).diagnostics == {
        "clipped-fraction": 0.0
    }


def test_samples_that_coincide_to_rounding_are_no_error() -> None:
    """Two samples in all, of clients far from the reference: their variance may round to 0."""
    from bfl.aggregation.pooling import pooling_rules

    size = 1000
    previous = Posterior(np.full(size, -1e9), np.ones(size))
    far = Posterior(np.zeros(size), np.full(size, 1e-6))
    pooled = pool(
        pooling_rules.create("population-pooling", {"population-size": 2}),
        [far, far],
        [1, 1],
        previous=previous,
        generators=[np.random.default_rng(k) for k in range(2)],
    )
    assert np.all(pooled.posterior.variance > 0)
