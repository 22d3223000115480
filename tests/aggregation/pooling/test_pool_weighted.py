"""``pool_weighted``: clients that come one by one, with weights that are taken as they are."""

from typing import Any

import numpy as np
import pytest
from every_rule import EVERY, generators, make_clients

from bfl.aggregation.pooling import normalised, pool, pool_weighted, pooling_rules
from bfl.aggregation.pooling.core import GROUP
from bfl.errors import PosteriorError


@EVERY
@pytest.mark.parametrize("count", [1, GROUP - 1, GROUP, GROUP + 1, 2 * GROUP])
def test_it_gives_the_bits_of_pool(rule: Any, count: int) -> None:
    everyone = make_clients(0, count)
    weights = normalised([1.0 + k for k in range(count)])
    coming = zip(everyone, weights, generators(count), strict=True)
    got = pool_weighted(rule, coming, previous=everyone[-1])
    same = pool(rule, everyone, weights, previous=everyone[-1], generators=generators(count))
    assert got.posterior.digest() == same.posterior.digest()
    assert got.diagnostics == same.diagnostics


def test_a_client_of_weight_zero_is_not_looked_at() -> None:
    rule = pooling_rules.create("ws")
    everyone = make_clients(0, 3)
    broken: Any = object()
    got = pool_weighted(
        rule, [(broken, 0.0, None), *((c, 1 / 3, None) for c in everyone), (broken, 0.0, None)]
    )
    assert got.posterior.digest() == pool(rule, everyone, [1, 1, 1]).posterior.digest()


def test_without_clients_there_is_nothing_to_pool() -> None:
    with pytest.raises(PosteriorError, match="nothing to pool"):
        pool_weighted(pooling_rules.create("ws"), [])


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
def test_weights_are_checked(bad: float) -> None:
    with pytest.raises(ValueError, match="a weight is"):
        pool_weighted(pooling_rules.create("ws"), [(make_clients(0, 1)[0], bad, None)])
