"""``pool``, apart from any one rule."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from every_rule import make_clients

from bfl.aggregation.pooling import pool, pooling_rules
from bfl.aggregation.pooling.core import BLOCK, GROUP
from bfl.errors import PosteriorError
from bfl.posteriors import Posterior


@pytest.mark.usefixtures("quick_collections")
def test_streamed_posteriors_are_let_go_by_groups() -> None:
    alive: list[weakref.ref[Posterior]] = []
    most = 0

    def clients() -> Iterator[Posterior]:
        nonlocal most
        for seed in range(3 * GROUP + 1):
            posterior = make_clients(seed, 1)[0]
            alive.append(weakref.ref(posterior))
            gc.collect()
            most = max(most, sum(ref() is not None for ref in alive))
            yield posterior
            del posterior

    weights = np.ones(3 * GROUP + 1)
    got = pool(pooling_rules.create("lp"), clients(), weights)
    assert most == GROUP
    everyone = [make_clients(seed, 1)[0] for seed in range(3 * GROUP + 1)]
    expected = pool(pooling_rules.create("lp"), everyone, weights)
    assert got.posterior.digest() == expected.posterior.digest()


def test_each_value_of_a_list_of_clients_is_read_by_one_block_only() -> None:
    """Read once: blocks neither overlap nor leave anything out."""
    seen: list[tuple[int, int]] = []

    class Watched(np.ndarray[Any, np.dtype[np.float32]]):
        def __getitem__(self, key: Any) -> Any:
            if isinstance(key, slice):
                seen.append((key.start, key.stop))
            return np.asarray(self)[key]

    size = 3 * BLOCK + 5
    mean = np.zeros(size, np.float32).view(Watched)
    pool(pooling_rules.create("nwa"), [Posterior(mean, np.ones(size, np.float32))], [1.0])
    parts = sorted(set(seen))
    assert [start for start, _ in parts] == [0, *(stop for _, stop in parts[:-1])]
    assert parts[-1][1] == size
    # To convert it, to check it while it is in the cache, and, as the first one, for the reference.
    assert len(seen) == 3 * len(parts)


def test_numbers_of_clients_must_agree() -> None:
    rule, clients = pooling_rules.create("nwa"), make_clients(0, 3)
    with pytest.raises(ValueError, match="argument"):
        pool(rule, clients, np.ones(4))
    with pytest.raises(ValueError, match="argument"):
        pool(rule, clients, np.ones(2))
    with pytest.raises(ValueError, match="argument"):
        pool(rule, clients, np.ones(3), generators=[np.random.default_rng(0)])


@pytest.mark.parametrize("weights", [[], [0.0, 0.0]])
def test_nothing_to_pool_is_said(weights: list[float]) -> None:
    with pytest.raises(PosteriorError, match="nothing to pool"):
        pool(pooling_rules.create("nwa"), make_clients(0, len(weights)), weights)


def test_extreme_weights_are_normalised() -> None:
    clients, rule = make_clients(0, 2), pooling_rules.create("nwa")
    expected = pool(rule, clients, [1, 1]).posterior.digest()
    for weight in (1e308, 5e-324):
        assert pool(rule, clients, [weight, weight]).posterior.digest() == expected


def test_the_first_block_in_error_is_the_one_that_is_told() -> None:
    size = 6 * BLOCK
    previous = Posterior(np.zeros(size), np.full(size, 3.0))
    everyone = [Posterior(np.zeros(size), np.ones(size)) for _ in range(2)]
    # One parameter of the second block and two of the last have too little precision.
    previous.variance[[BLOCK + 3, 5 * BLOCK, 5 * BLOCK + 1]] = 0.1
    rule = pooling_rules.create("dwc", {"negative-precision": "error"})
    with pytest.raises(PosteriorError, match="at least 1 parameters"):
        pool(rule, everyone, [1, 1], previous=previous)


def test_settings_come_from_the_flat_configuration() -> None:
    settings = {"population-size": 7, "negative-precision": "error", "dispersion-floor": 0.5}
    made = [pooling_rules.create(n, settings) for n in ("ppa", "dwc", "client-gaussian", "lp")]
    assert [rule.model_dump() for rule in made] == [
        {"population_size": 7},
        {"negative_precision": "error"},
        {"dispersion_floor": 0.5},
        {},
    ]


def test_sums_are_taken_in_float64() -> None:
    # In float32 the many small contributions beside the large one would vanish.
    like = Posterior(np.zeros(1, np.float32), np.ones(1, np.float32))
    many = [Posterior(np.ones(1, np.float32), like.variance)] * 1000
    clients = [Posterior(np.full(1, 2.0**25, np.float32), like.variance), *many]
    mean = pool(pooling_rules.create("nwa"), clients, np.ones(1001)).posterior.mean
    assert mean[0] == np.float32((2.0**25 + 1000) / 1001)
