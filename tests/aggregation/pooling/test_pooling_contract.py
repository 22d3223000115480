"""What every registered pooling rule promises; legitimate exceptions are declared by the rule."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from every_rule import (
    EVERY,
    SEEDS,
    assert_identical,
    assert_same,
    draw_weights,
    generators,
    make_clients,
    pool_all,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from bfl.aggregation.pooling import CLIPPED_FRACTION, DAMPING, PoolingRule, pool, pooling_rules
from bfl.aggregation.pooling.base import DAMPED_FURTHER, Sums
from bfl.errors import PosteriorError
from bfl.posteriors import Posterior

NAN, INF = float("nan"), float("inf")

NAMES = {
    "client-gaussian": ["fedbe-gaussian"],
    "conflation": ["inverse-variance-weighting", "iv"],
    "distributed-weight-consolidation": ["dwc"],
    "linear-pool": ["lp", "linear-pooling"],
    "log-linear-pool": ["llp", "log-linear-pooling"],
    "log-variance-averaging": ["aalv"],
    "naive-weighted-averaging": ["nwa", "eaa", "clp", "centered-linear-pool"],
    "population-pooling": ["ppa"],
    "weighted-conflation": ["wc", "cf"],
    "weighted-sum-of-normals": ["ws", "gaa", "gaussian-arithmetic-aggregation"],
}


def test_the_papers_names_and_aliases_are_found() -> None:
    assert set(NAMES) <= set(pooling_rules.names())
    assert all(pooling_rules.get(a).name == name for name, more in NAMES.items() for a in more)


@EVERY
def test_means_are_averaged_as_the_rule_declares(rule: PoolingRule) -> None:
    clients, weights = make_clients(3, 4), draw_weights(3, 4)
    previous = make_clients(4, 1)[0]
    average = np.average([client.mean for client in clients], axis=0, weights=weights)
    pooled = pool_all(rule, clients, weights, previous).posterior.mean
    averaged = np.allclose(pooled, average, rtol=1e-5, atol=1e-6)
    assert averaged or not rule.averages_means
    # A rule of somebody's own may average and not say so: it then does not go with SCAFFOLD.
    assert rule.averages_means or not averaged or rule.name not in NAMES
    assert ("averaged-means" in rule.has()) == rule.averages_means


@EVERY
@given(seed=SEEDS, count=st.integers(1, 6), with_previous=st.booleans())
@settings(max_examples=20)
def test_the_order_of_the_clients_does_not_matter(
    rule: PoolingRule, seed: int, count: int, with_previous: bool
) -> None:
    previous, *clients = make_clients(seed, count + 1)
    given_previous = previous if with_previous else None
    weights, order = draw_weights(seed, count), np.random.default_rng(seed).permutation(count)
    drawers = generators(count)
    permuted = pool(
        rule,
        [clients[k] for k in order],
        weights[order],
        previous=given_previous,
        generators=[drawers[k] for k in order],
    )
    assert_same(permuted, pool_all(rule, clients, weights, given_previous))


DIVIDED = {
    *("conflation", "weighted-conflation", "weighted-sum-of-normals"),
    *("distributed-weight-consolidation", "factor-changes"),
}
"""Rules that divide the variance of K identical posteriors by K; the others keep it."""


def expected_variance(
    rule: PoolingRule, variance: npt.NDArray[np.float64], count: int
) -> npt.NDArray[np.float64]:
    if floor := getattr(rule, "dispersion_floor", None):
        return np.full_like(variance, floor)
    return variance / count if rule.name.removeprefix("clamped-") in DIVIDED else variance


@EVERY
@pytest.mark.of_bfls_own
@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_identical_posteriors_give_the_declared_variance(
    rule: PoolingRule, count: int, offset: float
) -> None:
    one = make_clients(count, 1, size=3000)[0]
    one = Posterior(one.mean + offset, one.variance, one.point)
    got = pool_all(rule, [one] * count, np.ones(count)).posterior
    expected = expected_variance(rule, one.variance, count)
    if not rule.stochastic:
        np.testing.assert_allclose(got.mean, one.mean, rtol=1e-13)
        np.testing.assert_allclose(got.variance, expected, rtol=1e-12)
    else:  # A sample: right on average over the parameters.
        assert np.mean((got.mean - one.mean) / np.sqrt(one.variance)) == pytest.approx(0, abs=0.01)
        assert np.mean(got.variance / expected) == pytest.approx(1, abs=0.01)
    np.testing.assert_allclose(got.point, one.point, rtol=1e-13)


@EVERY
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(seed=SEEDS, count=st.integers(1, 6), with_previous=st.booleans())
@settings(max_examples=20)
def test_results_are_valid_of_the_given_type_and_size(
    rule: PoolingRule, dtype: type, seed: int, count: int, with_previous: bool
) -> None:
    previous, *clients = make_clients(seed, count + 1, dtype=dtype)
    weights = draw_weights(seed, count)
    pooled = pool_all(rule, clients, weights, previous if with_previous else None)
    pooled.posterior.check(clients[0])
    for name in ("mean", "variance", "point"):
        assert getattr(pooled.posterior, name).dtype == dtype
    step = (DAMPING, DAMPED_FURTHER) if rule.damped else ()
    assert tuple(pooled.diagnostics) == (*rule.fractions, CLIPPED_FRACTION, *step)
    assert all(0 <= fraction <= 1 for fraction in pooled.diagnostics.values())


@EVERY
@pytest.mark.parametrize("extreme", ["tiny", "max"])
def test_a_variance_that_float32_cannot_hold_is_clipped(rule: PoolingRule, extreme: str) -> None:
    limit = np.finfo(np.float32)
    value = np.full(4, getattr(limit, extreme), np.float32)
    clients = [Posterior(np.full(4, m, np.float32), value) for m in (-1e19, 1e19, 1e19)]
    for group in (clients, clients[:1] * 3):
        variance = pool_all(rule, group, np.ones(3)).posterior.variance
        assert np.all(variance >= limit.tiny)
        assert np.all(variance <= limit.max)


@EVERY
@given(seed=SEEDS, count=st.integers(1, 5), factor=st.floats(1e-6, 1e6))
@settings(max_examples=20)
def test_the_scale_of_the_weights_does_not_matter(
    rule: PoolingRule, seed: int, count: int, factor: float
) -> None:
    clients, weights = make_clients(seed, count), draw_weights(seed, count)
    expected = pool_all(rule, clients, weights)
    assert_same(pool_all(rule, clients, factor * weights), expected)
    if not rule.weights_are_fractions:
        sums = Sums(rule, clients[0])
        for members in zip(clients, factor * weights, generators(count), strict=True):
            sums.add(*members)
        assert_same(sums.pool(), expected)


@EVERY
@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_client_of_weight_zero_is_absent(rule: PoolingRule, place: int) -> None:
    previous, *clients = make_clients(2, 4)
    weights, drawers = [0.5, 0.2, 0.3], generators(3)
    expected = pool(rule, clients, weights, previous=previous, generators=drawers)
    nan = np.full(37, np.nan)
    more, more_weights, more_drawers = list(clients), list(weights), generators(3)
    more.insert(place, Posterior(nan, nan, np.full(5, np.nan)))
    more_weights.insert(place, 0.0)
    more_drawers.insert(place, np.random.default_rng(0))
    got = pool(rule, more, more_weights, previous=previous, generators=more_drawers)
    assert_identical(got, expected)


@EVERY
def test_declared_inputs_are_the_ones_that_matter(rule: PoolingRule) -> None:
    previous, *clients = make_clients(4, 4, scales=(0.1, 1.0))
    wide = Posterior(previous.mean, np.full(37, 1e2), previous.point)
    equal = pool_all(rule, clients, np.ones(3), wide).posterior
    weighted = pool_all(rule, clients, [0.7, 0.2, 0.1], wide).posterior
    assert np.allclose(equal.variance, weighted.variance, rtol=1e-9) is not rule.uses_weights
    assert np.allclose(equal.mean, weighted.mean, rtol=1e-9) is not rule.uses_weights
    without = pool_all(rule, clients, np.ones(3)).posterior
    assert np.allclose(equal.variance, without.variance, rtol=1e-9) is not rule.uses_previous
    again = pool(rule, clients, np.ones(3), generators=generators(9)[6:]).posterior
    assert np.array_equal(again.variance, without.variance) is not rule.stochastic


@EVERY
def test_generators_are_needed_by_stochastic_rules_only(rule: PoolingRule) -> None:
    clients = make_clients(4, 2)
    if rule.stochastic:
        with pytest.raises(ValueError, match="one generator per client"):
            pool(rule, clients, [1, 1])
    else:
        assert_identical(pool(rule, clients, [1, 1]), pool_all(rule, clients, [1, 1]))


@EVERY
def test_points_are_averaged_with_the_weights(rule: PoolingRule) -> None:
    none = np.zeros(0, np.float32)
    clients = [Posterior(none, none, np.array(p, np.float32)) for p in ([1, 2], [3, 6], [9, 9])]
    got = pool_all(rule, clients, [3, 1, 0]).posterior
    assert got.size == 0
    assert got.point.tolist() == [1.5, 3.0]


@EVERY
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blocks_do_not_show(
    rule: PoolingRule, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    if rule.stochastic:
        pytest.skip("declared: draws are made block by block")
    previous, *clients = make_clients(6, 8, size=1003, dtype=dtype)
    weights = [16, 0, 8, 4, 2, 1, 1]
    for given_previous in (None, previous):
        whole = pool_all(rule, clients, weights, given_previous)
        with monkeypatch.context() as patch:
            patch.setattr("bfl.aggregation.pooling.base.BLOCK", 64)  # the last of them is short
            assert_identical(pool_all(rule, clients, weights, given_previous), whole)


@EVERY
@pytest.mark.parametrize(
    ("vector", "value"),
    [(vector, value) for vector in ("mean", "variance", "point") for value in (NAN, INF, -INF)]
    + [("variance", 0.0), ("variance", -1.0)],
)
def test_one_value_that_is_not_valid_is_refused_wherever_it_is(
    rule: PoolingRule, vector: str, value: float
) -> None:
    for client, place in ((0, 0), (2, 4)):
        bad = make_clients(9, 3, size=5)
        values = np.array(getattr(bad[client], vector))
        values[place] = value
        bad[client] = replace(bad[client], **{vector: values})
        with pytest.raises(PosteriorError, match=f"{vector} has 1 of 5"):
            pool_all(rule, bad, np.ones(3))


@EVERY
def test_what_cannot_be_pooled_is_refused(rule: PoolingRule) -> None:
    first, second = make_clients(7, 2)
    other = make_clients(7, 1, size=3)[0]
    for clients, previous in (([first, other], None), ([first, second], other)):
        with pytest.raises(PosteriorError, match="expected 37"):
            pool_all(rule, clients, np.ones(2), previous)
