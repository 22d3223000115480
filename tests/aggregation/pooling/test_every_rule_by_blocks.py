"""What every rule promises of blocks, threads and groups of clients, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from every_rule import (
    EVERY,
    MakeClients,
    accumulate,
    assert_identical,
    generators,
    pool_all,
)

from bfl.aggregation.pooling import Accumulator, PoolingRule, pool
from bfl.errors import PosteriorError
from bfl.posteriors import Posterior

NAN, INF = float("nan"), float("inf")


@EVERY
def test_blocks_do_not_show(
    rule: PoolingRule, make_clients: MakeClients, monkeypatch: pytest.MonkeyPatch
) -> None:
    if rule.stochastic:
        pytest.skip("declared: draws are made block by block")
    previous, *clients = make_clients(6, 4, size=101)
    for given_previous in (None, previous):
        whole = pool_all(rule, clients, [1, 2, 3], given_previous)
        with monkeypatch.context() as patch:
            patch.setattr("bfl.aggregation.pooling.blocks.BLOCK", 16)
            assert_identical(pool_all(rule, clients, [1, 2, 3], given_previous), whole)


@EVERY
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("with_previous", [False, True])
def test_the_bits_depend_on_neither_threads_nor_groups(
    rule: PoolingRule,
    make_clients: MakeClients,
    monkeypatch: pytest.MonkeyPatch,
    dtype: type,
    with_previous: bool,
) -> None:
    made, *clients = make_clients(8, 8, size=1003, dtype=dtype)
    previous = made if with_previous else None
    # Binary fractions that sum to 1, so that normalising them leaves them as they are.
    weights = np.array([16, 0, 8, 4, 2, 1, 1]) / 32
    monkeypatch.setattr("bfl.aggregation.pooling.blocks.BLOCK", 64)  # 16 blocks, the last one short
    expected = pool_all(rule, clients, weights, previous)
    for threads in (1, 2, 3):
        for group in (1, 2, 3, 16):
            monkeypatch.setattr("bfl.aggregation.pooling.clients.GROUP", group)
            for given_clients in (clients, tuple(clients), iter(clients)):
                got = pool(
                    rule,
                    given_clients,
                    weights,
                    previous=previous,
                    generators=generators(7),
                    threads=threads,
                )
                assert_identical(got, expected)
        accumulator = Accumulator.empty(rule, clients[0], previous, threads=threads)
        for client, weight, generator in zip(clients, weights, generators(7), strict=True):
            accumulator.add(client, float(weight), generator)
        assert_identical(accumulator.result(), expected)
        assert_identical(accumulator.result(), expected)  # asking changes nothing


@EVERY
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("vector", "value"),
    [(vector, value) for vector in ("mean", "variance", "point") for value in (NAN, INF, -INF)]
    + [("variance", 0.0), ("variance", -1.0)],
)
def test_one_value_that_is_not_valid_is_refused_wherever_it_is(
    rule: PoolingRule,
    make_clients: MakeClients,
    monkeypatch: pytest.MonkeyPatch,
    threads: int,
    vector: str,
    value: float,
) -> None:
    monkeypatch.setattr("bfl.aggregation.pooling.blocks.BLOCK", 16)
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
                    pool(
                        rule,
                        given_clients,
                        np.ones(3),
                        generators=generators(3),
                        threads=threads,
                    )
            accumulator = accumulate(rule, clients, np.ones(3) / 3, [0, 1])
            before = accumulator.result()
            with pytest.raises(PosteriorError, match=f"{vector} has 1 of .* {reason}"):
                accumulator.add(bad[client], 1 / 3, generators(1)[0])
            assert_identical(accumulator.result(), before)


@EVERY
def test_what_cannot_be_pooled_is_refused(rule: PoolingRule, make_clients: MakeClients) -> None:
    clients = make_clients(7, 2)
    accumulator = Accumulator.empty(rule, clients[0])
    with pytest.raises(PosteriorError, match="nothing to pool"):
        accumulator.result()
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="weight"):
            accumulator.add(clients[0], bad, generators(1)[0])
    other = make_clients(7, 1, size=3)[0]
    with pytest.raises(PosteriorError, match="expected 37"):
        accumulator.add(other, 1.0, generators(1)[0])
    with pytest.raises(PosteriorError, match="expected 37"):
        accumulator.merge(Accumulator.empty(rule, other))
    negative = Posterior(clients[0].mean, -clients[0].variance, clients[0].point)
    with pytest.raises(PosteriorError, match="not positive"):
        accumulator.add(negative, 1.0, generators(1)[0])
    with pytest.raises(PosteriorError, match="expected 37"):
        Accumulator.empty(rule, clients[0], previous=other)
    with pytest.raises(PosteriorError, match="nothing to pool"):
        accumulator.result()
