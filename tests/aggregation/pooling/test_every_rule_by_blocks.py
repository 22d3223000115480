"""What every rule promises of blocks and groups of clients, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest
from every_rule import EVERY, assert_identical, generators, make_clients, pool_all

from bfl.aggregation.pooling import PoolingRule, pool
from bfl.errors import PosteriorError
from bfl.posteriors import Posterior

NAN, INF = float("nan"), float("inf")


@EVERY
def test_blocks_do_not_show(rule: PoolingRule, monkeypatch: pytest.MonkeyPatch) -> None:
    if rule.stochastic:
        pytest.skip("declared: draws are made block by block")
    previous, *clients = make_clients(6, 4, size=101)
    for given_previous in (None, previous):
        whole = pool_all(rule, clients, [1, 2, 3], given_previous)
        with monkeypatch.context() as patch:
            patch.setattr("bfl.aggregation.pooling.core.BLOCK", 16)
            assert_identical(pool_all(rule, clients, [1, 2, 3], given_previous), whole)


@EVERY
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("with_previous", [False, True])
def test_the_bits_do_not_depend_on_groups(
    rule: PoolingRule,
    monkeypatch: pytest.MonkeyPatch,
    dtype: type,
    with_previous: bool,
) -> None:
    made, *clients = make_clients(8, 8, size=1003, dtype=dtype)
    previous = made if with_previous else None
    # Binary fractions that sum to 1, so that normalising them leaves them as they are.
    weights = np.array([16, 0, 8, 4, 2, 1, 1]) / 32
    monkeypatch.setattr("bfl.aggregation.pooling.core.BLOCK", 64)  # 16 blocks, the last one short
    expected = pool_all(rule, clients, weights, previous)
    for group in (1, 2, 3, 16):
        monkeypatch.setattr("bfl.aggregation.pooling.core.GROUP", group)
        for given_clients in (clients, tuple(clients), iter(clients)):
            got = pool(rule, given_clients, weights, previous=previous, generators=generators(7))
            assert_identical(got, expected)


@EVERY
@pytest.mark.parametrize(
    ("vector", "value"),
    [(vector, value) for vector in ("mean", "variance", "point") for value in (NAN, INF, -INF)]
    + [("variance", 0.0), ("variance", -1.0)],
)
def test_one_value_that_is_not_valid_is_refused_wherever_it_is(
    rule: PoolingRule,
    monkeypatch: pytest.MonkeyPatch,
    vector: str,
    value: float,
) -> None:
    monkeypatch.setattr("bfl.aggregation.pooling.core.BLOCK", 16)
    clients = make_clients(9, 3, size=101)
    reason = "not positive" if np.isfinite(value) else "not finite|not positive"
    for client in (0, 2):
        for place in (0, 50, 100) if vector != "point" else (0, 4):
            values = np.array(getattr(clients[client], vector))
            values[place] = value
            bad = list(clients)
            bad[client] = replace(clients[client], **{vector: values})
            for given_clients in (bad, iter(bad)):
                with pytest.raises(PosteriorError, match=f"{vector} has 1 of .* {reason}"):
                    pool(rule, given_clients, np.ones(3), generators=generators(3))


@EVERY
def test_what_cannot_be_pooled_is_refused(rule: PoolingRule) -> None:
    first, second = make_clients(7, 2)
    other = make_clients(7, 1, size=3)[0]
    negative = Posterior(first.mean, -first.variance, first.point)
    for clients, previous, words in (
        ([], None, "nothing to pool"),
        ([first, other], None, "expected 37"),
        ([first, second], other, "expected 37"),
        ([first, negative], None, "not positive"),
    ):
        with pytest.raises(PosteriorError, match=words):
            pool_all(rule, clients, np.ones(len(clients)), previous)
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="weight"):
            pool_all(rule, [first, second], [1.0, bad])
