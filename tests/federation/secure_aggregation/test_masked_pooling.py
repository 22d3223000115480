"""A rule's statistics as whole numbers modulo 2⁶⁴: sums exact, pooled posteriors within bounds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bfl.aggregation.pooling import pool, pooling_rules
from bfl.aggregation.pooling.base import client_statistics, pool_statistics
from bfl.errors import ConfigurationError, PosteriorError
from bfl.federation.secure_aggregation.accuracy import (
    check_accuracy,
    greatest_errors,
    rounding_error,
)
from bfl.federation.secure_aggregation.masking import (
    GREATEST_DEVIATION,
    GREATEST_POINT,
    LEAST_DEVIATION,
    REACH,
    check_range,
    choose_exponents,
    clip_to_range,
    decode,
    decode_statistics,
    encode,
    encode_statistics,
    exponent_for,
)
from bfl.posteriors import Posterior

RULES = [c.name for c in pooling_rules.classes() if "sums" in c().has()]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(1.0, 1e3))
def test_sums_are_exact_and_off_by_rounding_alone(numbers, slack):
    exponent = exponent_for(slack * sum(map(abs, numbers)))
    elements = [encode(np.array([x]), exponent) for x in numbers]
    backwards = np.array([0], np.uint64)
    total = np.array([0], np.uint64)
    for element, other in zip(elements, reversed(elements), strict=True):
        total += element
        backwards += other
    assert total == backwards
    exact = sum(int(np.rint(np.ldexp(x, exponent))) for x in numbers)
    assert int(total.view(np.int64)[0]) == exact
    error = abs(float(decode(total, exponent)[0]) - sum(numbers))
    assert error <= rounding_error(exponent, len(numbers)) + 1e-15 * sum(map(abs, numbers))


def test_numbers_beyond_the_range_are_refused_and_counted():
    exponent = exponent_for(8.0)
    assert float(decode(encode(np.array([-8.0]), exponent), exponent)[0]) == -8.0
    with pytest.raises(OverflowError, match="2 of 3 values are beyond"):
        encode(np.array([1.0, 1e3, np.nan]), exponent)
    with pytest.raises(ValueError, match="finite"):
        exponent_for(float("inf"))


def masked_pool(rule, posteriors, weights, previous, asked=None):
    """Return what a server makes of the clients' elements of the ring, which it only adds up."""
    exponents = choose_exponents(rule, previous, asked or weights)
    total = np.zeros(rule.statistics * previous.size + previous.point.size, np.uint64)
    for posterior, weight in zip(posteriors, weights, strict=True):
        check_range(posterior, previous)
        total += encode_statistics(client_statistics(rule, posterior, weight, previous), exponents)
    sums = decode_statistics(total, exponents, previous.size, previous.point.size)
    return pool_statistics(rule, sums, weights, previous)


def federation(clients, size, seed, deviations):
    """Return clients whose means and standard deviations are anywhere in the range."""
    generator = np.random.default_rng(seed)
    low, high = np.log(deviations)

    def posterior(mean, reach):
        shift = generator.uniform(-reach, reach, size) * generator.choice([1e-6, 1e-3, 1.0], size)
        return Posterior(
            mean + shift,
            np.exp(2 * generator.uniform(low, high, size)),
            generator.uniform(-1e3, 1e3, 5),
        )

    previous = posterior(np.zeros(size), 3.0)
    weights = generator.dirichlet(np.full(clients, 3.0))
    return [posterior(previous.mean, REACH) for _ in range(clients)], weights, previous


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("clients", [3, 32])
def test_every_rule_that_is_a_sum_pools_within_its_bounds(name, clients):
    """The mean within 0.01 pooled standard deviations, the variance within 0.1 %."""
    rule = pooling_rules.create(name)
    for seed, deviations in enumerate(
        [(LEAST_DEVIATION, GREATEST_DEVIATION), (1e-3, 0.1), (1.0, 1.0)]
    ):
        posteriors, weights, previous = federation(clients, 300, seed, deviations)
        direct = pool(rule, posteriors, weights, previous=previous)
        masked = masked_pool(rule, posteriors, weights, previous)
        wanted, got = direct.posterior, masked.posterior
        distance = np.abs(got.mean - wanted.mean) / np.sqrt(wanted.variance)
        assert distance.max() < 0.01
        np.testing.assert_allclose(got.variance, wanted.variance, rtol=1e-3)
        np.testing.assert_allclose(got.point, wanted.point, atol=1e-9)
        assert masked.diagnostics == pytest.approx(direct.diagnostics)


CORNER = Posterior(np.array([-1.0, 1.0]), np.array([1e-4, 0.5]), np.zeros(5))


def imbalanced(ratio):
    """Return the weights of 7 clients, and of 3 that hold so many times as many examples."""
    sizes = np.array([1.0] * 7 + [ratio] * 3)
    return [float(weight) for weight in sizes / sizes.sum()]


@pytest.mark.parametrize(
    ("name", "asked", "clients"),
    [
        *((name, [1 / 8] * 8, 8) for name in RULES),
        # The three of most weight drop out.
        *((name, imbalanced(1e3), 7) for name in ("ws", "log-linear-pool", "linear-pool")),
    ],
)
def test_rounding_is_foreseen(name, asked, clients):
    """What is foreseen at the corners is an upper bound of what clients there get."""
    rule, weights = pooling_rules.create(name), asked[:clients]
    if clients == len(asked):
        check_accuracy(rule, CORNER, asked, clients)
    worst = greatest_errors(rule, CORNER, asked, weights)
    generator = np.random.default_rng(2)
    for deviation in (LEAST_DEVIATION, GREATEST_DEVIATION):
        shift = generator.uniform(-1, 1, (clients, 2)) * REACH
        sent = [Posterior(CORNER.mean + s, np.full(2, deviation**2), np.zeros(5)) for s in shift]
        try:
            wanted = pool(rule, sent, weights, previous=CORNER).posterior
        except PosteriorError:
            continue
        found = masked_pool(rule, sent, weights, CORNER, asked).posterior
        errors = np.abs(found.mean - wanted.mean) / np.sqrt(wanted.variance)
        # Beside the grid's there is the rounding of float64, of the sums and of what is decoded.
        assert errors.max() <= worst[0] + 1e-6
        assert np.abs(found.variance / wanted.variance - 1).max() <= worst[1] + 1e-9


@pytest.mark.parametrize(
    ("name", "ratio"),
    [("weighted-sum-of-normals", 1e3), ("log-linear-pool", 1e5), ("weighted-conflation", 1e5)],
)
def test_weights_with_which_the_lightest_alone_would_be_off_are_refused(name, ratio):
    rule, weights = pooling_rules.create(name), imbalanced(ratio)
    with pytest.raises(ConfigurationError, match=r"where the \d of most weight drop out"):
        check_accuracy(rule, CORNER, weights, 5)
    check_accuracy(rule, CORNER, weights, 10)  # nobody may drop out
    check_accuracy(rule, CORNER, weights, 8)  # a heavy one always stays
    check_accuracy(rule, CORNER, imbalanced(10.0), 2)


@pytest.mark.parametrize("name", RULES)
def test_no_sum_of_clients_at_the_edges_of_the_range_leaves_the_ring(name):
    rule, clients = pooling_rules.create(name), 5
    generator = np.random.default_rng(3)
    mean, variance = generator.normal(size=6), generator.uniform(1e-9, 2.0, 6)
    previous = Posterior(mean, variance, np.zeros(1))
    weights = [1 / clients] * clients
    exponents = choose_exponents(rule, previous, weights)
    point = np.array([-GREATEST_POINT])
    for shift in (-REACH, 0.0, REACH):
        for deviation in (LEAST_DEVIATION, 0.1, GREATEST_DEVIATION):
            # Rounding may carry a variance over the edge; the check is in float64.
            client = Posterior(mean + shift, np.full(6, deviation**2), point)
            statistics = client_statistics(rule, client, weights[0], previous)
            one = encode_statistics(statistics, exponents)
            total = decode_statistics(one * np.uint64(clients), exponents, 6, 1)
            for row, expected, exponent in zip(
                (*total.gaussian, total.point),
                (*statistics.gaussian, statistics.point),
                exponents,
                strict=True,
            ):
                allowed = rounding_error(exponent, clients)
                np.testing.assert_allclose(row, clients * expected, rtol=1e-12, atol=allowed)


@pytest.mark.parametrize(
    ("client", "beyond"),
    [
        (Posterior(np.array([0.0, 90.0]), np.ones(2)), "1 of 2 means"),
        (Posterior(np.zeros(2), np.array([1.0, 1e-30])), "1 of 2 standard deviations"),
        (Posterior(np.zeros(2), np.full(2, 1e9)), "2 of 2 standard deviations"),
        (Posterior(np.zeros(2), np.ones(2), np.full(1, -1e9)), "1 of 1 point parameters"),
    ],
)
def test_a_posterior_outside_of_the_range_is_refused(client, beyond):
    previous = Posterior(np.zeros(2), np.ones(2), np.zeros(1))
    with pytest.raises(PosteriorError, match=f"{beyond}.*masked sums hold no others"):
        check_range(client, previous)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_what_is_held_in_the_range_is_inside_after_rounding_and_else_as_it_was(kind):
    generator = np.random.default_rng(7)
    previous = Posterior(
        generator.normal(0, 1e3, 500).astype(kind), np.ones(500, kind), np.zeros(3, kind)
    )
    wild = Posterior(
        (previous.mean + generator.normal(0, 20, 500)).astype(kind),
        np.exp(generator.normal(-10, 20, 500)).astype(kind),
        np.array([-1e30, 5.0, 1e30], kind),
    )
    held = clip_to_range(wild, previous)
    check_range(held, previous)
    assert held.mean.dtype == held.variance.dtype == held.point.dtype == kind
    inside = np.abs(wild.mean.astype(float) - previous.mean) < 0.999 * REACH
    np.testing.assert_array_equal(held.mean[inside], wild.mean[inside])
    deviation = np.sqrt(wild.variance.astype(float))
    inside = (deviation > LEAST_DEVIATION) & (deviation < GREATEST_DEVIATION)
    np.testing.assert_array_equal(held.variance[inside], wild.variance[inside])
    assert inside.any()
    assert not inside.all()


def test_a_network_of_points_alone_is_a_sum_as_well():
    rule = pooling_rules.create("nwa")
    previous = Posterior(np.zeros(0), np.zeros(0), np.zeros(2))
    posteriors = [Posterior(np.zeros(0), np.zeros(0), np.array([k, -2.5 * k])) for k in range(3)]
    pooled = masked_pool(rule, posteriors, [0.5, 0.25, 0.25], previous).posterior
    np.testing.assert_allclose(pooled.point, [0.75, -1.875], atol=1e-9)


def test_a_client_of_weight_0_adds_nothing():
    rule = pooling_rules.create("conflation")
    previous = Posterior(np.zeros(2), np.ones(2), np.zeros(1))
    heavy = Posterior(np.ones(2), np.full(2, 0.5), np.ones(1))
    found = masked_pool(rule, [heavy, previous, previous], [1.0, 0.0, 0.0], previous).posterior
    np.testing.assert_allclose(found.mean, heavy.mean)
    np.testing.assert_allclose(found.variance, heavy.variance)
