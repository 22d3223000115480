"""Defences: what all promise, each against its formula, and work by blocks that does not show."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bfl.aggregation.defences import Defence, VarianceFloor, Winsorization, defences
from bfl.aggregation.pooling import pool, pooling_rules
from bfl.posteriors import Posterior


def clients(count: int, size: int = 50, seed: int = 0) -> list[Posterior]:
    rng = np.random.default_rng(seed)
    return [
        Posterior(
            rng.normal(size=size).astype(np.float32),
            rng.uniform(0.5, 2.0, size).astype(np.float32),
            rng.normal(size=4).astype(np.float32),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("name", defences.names())
@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_the_contract_of_every_defence(name: str, count: int) -> None:
    defence = defences.create(name)
    given_ = clients(count)
    copies = [Posterior(p.mean.copy(), p.variance.copy(), p.point.copy()) for p in given_]
    protected = defence.protect(given_)
    assert len(protected) == count
    for before, copy, after in zip(given_, copies, protected, strict=True):
        after.check(like=before)
        assert after.mean.dtype == before.mean.dtype
        assert before.digest() == copy.digest()  # the input is left alone
    order = np.random.default_rng(1).permutation(count)
    shuffled = defence.protect([given_[i] for i in order])
    assert [p.digest() for p in shuffled] == [protected[i].digest() for i in order]


@pytest.mark.parametrize("name", defences.names())
def test_networks_of_points_are_taken(name: str) -> None:
    points = [
        Posterior(np.zeros(0, np.float32), np.zeros(0, np.float32), p.point) for p in clients(5)
    ]
    for before, after in zip(points, defences.create(name).protect(points), strict=True):
        after.check(like=before)


@given(st.integers(3, 11), st.floats(0.0, 0.5), st.integers(0, 5))
def test_winsorization_keeps_every_value_within_the_honest_range(
    count: int, fraction: float, seed: int
) -> None:
    """Whatever up to t of the K clients send."""
    honest = clients(count, size=20, seed=seed)
    tolerated = min(int(np.ceil(fraction * count - 1e-9)), (count - 1) // 2)
    rng = np.random.default_rng(seed)
    sent = list(honest)
    for liar in rng.choice(count, size=tolerated, replace=False):
        wild = rng.choice([-1e30, 1e30, 0.0, 3.0], 20).astype(np.float32)
        sent[liar] = Posterior(
            wild, rng.choice([1e-30, 1e30], 20).astype(np.float32), wild[:4].copy()
        )
    truthful = [p for p, q in zip(honest, sent, strict=True) if p is q]
    protected = Winsorization(hostile_fraction=fraction).protect(sent)
    for name in ("mean", "variance", "point"):
        low = np.min([getattr(p, name) for p in truthful], axis=0)
        high = np.max([getattr(p, name) for p in truthful], axis=0)
        for posterior in protected:
            assert np.all((getattr(posterior, name) >= low) & (getattr(posterior, name) <= high))


def test_winsorization_against_scipy() -> None:
    from scipy.stats.mstats import winsorize

    given_ = clients(10)
    protected = Winsorization(hostile_fraction=0.2).protect(given_)
    expected = winsorize(np.stack([p.mean for p in given_]), limits=(0.2, 0.2), axis=0)
    assert np.array_equal(np.stack([p.mean for p in protected]), np.asarray(expected))


def test_a_client_that_claims_certainty_no_longer_captures_conflation() -> None:
    honest = [Posterior(np.full(3, 1.0), np.ones(3)) for _ in range(8)]
    liars = [Posterior(np.full(3, -50.0), np.full(3, 1e-12)) for _ in range(2)]
    conflation = pooling_rules.create("conflation")

    def mean(posteriors: list[Posterior]) -> float:
        return float(pool(conflation, posteriors, np.ones(10)).posterior.mean[0])

    assert mean(honest + liars) == pytest.approx(-50.0, abs=1e-6)
    floored = mean(VarianceFloor(variance_floor=1.0).protect(honest + liars))
    assert floored == pytest.approx((8 * 1.0 + 2 * -50.0) / 10)
    assert mean(Winsorization(hostile_fraction=0.2).protect(honest + liars)) == pytest.approx(1.0)


def test_variances_are_clamped_and_all_else_is_as_sent() -> None:
    sent = Posterior(
        np.arange(4, dtype=np.float32),
        np.exp(np.array([-9.0, -7.9, 7.9, 9.0])).astype(np.float32),
        np.ones(2, np.float32),
    )
    (kept,) = defences.create("variance-clamp").protect([sent])
    np.testing.assert_allclose(np.log(kept.variance), [-8.0, -7.9, 7.9, 8.0], rtol=1e-5)
    assert kept.variance.dtype == np.float32
    np.testing.assert_array_equal(kept.mean, sent.mean)
    np.testing.assert_array_equal(kept.point, sent.point)
    (narrow,) = defences.create("variance-clamp", {"variance-clamp": 1.0}).protect([sent])
    np.testing.assert_allclose(np.log(narrow.variance), [-1.0, -1.0, 1.0, 1.0], rtol=1e-5)


CHANGING = pytest.mark.parametrize(
    "defence", [defences.create(name) for name in ("variance-floor", "winsorization")]
)


@CHANGING
@pytest.mark.parametrize("count", [4, 5])
def test_blocks_do_not_show(defence: Defence, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    posteriors = clients(count, 101)
    whole = [p.digest() for p in defence.protect(posteriors)]
    monkeypatch.setattr("bfl.aggregation.defences.ENTRIES", 16 * count)
    assert [p.digest() for p in defence.protect(posteriors)] == whole


@pytest.mark.parametrize("count", [1, 2, 7, 8])
def test_the_variance_floor_is_a_share_of_the_median(count: int) -> None:
    posteriors = clients(count, 101)
    protected = defences.create("variance-floor", {"variance-floor": 0.5}).protect(posteriors)
    variances = np.stack([p.variance for p in posteriors])
    expected = np.maximum(variances, 0.5 * np.median(variances, axis=0))
    np.testing.assert_allclose(np.stack([p.variance for p in protected]), expected, rtol=1e-6)
