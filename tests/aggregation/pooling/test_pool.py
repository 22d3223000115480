"""``pool``, apart from any one rule."""

import gc
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from every_rule import generators, make_clients

from bfl.aggregation.pooling import pool, pooling_rules
from bfl.errors import PosteriorError
from bfl.posteriors import Posterior


@pytest.mark.usefixtures("quick_collections")
def test_streamed_posteriors_are_let_go_one_by_one() -> None:
    alive: list[weakref.ref[Posterior]] = []
    most = 0

    def clients() -> Iterator[Posterior]:
        nonlocal most
        for seed in range(9):
            posterior = make_clients(seed, 1)[0]
            alive.append(weakref.ref(posterior))
            gc.collect()
            most = max(most, sum(ref() is not None for ref in alive))
            yield posterior
            del posterior

    got = pool(pooling_rules.create("lp"), clients(), np.ones(9))
    assert most <= 2
    everyone = [make_clients(seed, 1)[0] for seed in range(9)]
    expected = pool(pooling_rules.create("lp"), everyone, np.ones(9))
    assert got.posterior.digest() == expected.posterior.digest()


def test_numbers_of_clients_must_agree() -> None:
    rule, clients = pooling_rules.create("nwa"), make_clients(0, 3)
    for weights, drawers in ((np.ones(4), None), (np.ones(2), None), (np.ones(3), generators(1))):
        with pytest.raises(ValueError, match="argument"):
            pool(rule, clients, weights, generators=drawers)


def test_nothing_and_wrong_weights_are_refused() -> None:
    rule, one = pooling_rules.create("ws"), make_clients(0, 1)[0]
    for weights in ([], [0.0, 0.0]):
        with pytest.raises(PosteriorError):
            pool(rule, [one] * len(weights), weights)
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=f"{bad}"):
            pool(rule, [one], [bad])


def test_extreme_weights_are_normalised() -> None:
    clients, rule = make_clients(0, 2), pooling_rules.create("nwa")
    expected = pool(rule, clients, [1, 1]).posterior.digest()
    for weight in (1e308, 5e-324):
        assert pool(rule, clients, [weight, weight]).posterior.digest() == expected


def test_sums_are_taken_in_float64() -> None:
    # In float32 the many small contributions beside the large one would vanish.
    like = Posterior(np.zeros(1, np.float32), np.ones(1, np.float32))
    many = [Posterior(np.ones(1, np.float32), like.variance)] * 1000
    clients = [Posterior(np.full(1, 2.0**25, np.float32), like.variance), *many]
    mean = pool(pooling_rules.create("nwa"), clients, np.ones(1001)).posterior.mean
    assert mean[0] == np.float32((2.0**25 + 1000) / 1001)
