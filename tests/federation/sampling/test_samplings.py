"""Every registered sampling: a function of the seed and the round, of clients that exist."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bfl import randomness
from bfl.federation.sampling import samplings


@pytest.mark.parametrize("name", samplings.names())
@given(seed=st.integers(0, 100), server_round=st.integers(1, 500), clients=st.integers(1, 40))
def test_clients_exist_are_sorted_and_come_once(
    name: str, seed: int, server_round: int, clients: int
) -> None:
    sampling = samplings.create(name)
    chosen = sampling.sample(seed, server_round, clients)
    assert chosen
    assert chosen == sorted(set(chosen))
    assert set(chosen) <= set(range(clients))
    assert chosen == samplings.create(name).sample(seed, server_round, clients)


def test_random_sampling_takes_the_share_and_everybody_has_the_same_chance() -> None:
    sampling = samplings.create("random", {"fraction-train": 0.3})
    rounds = [sampling.sample(7, number, 10) for number in range(1, 2001)]
    assert {len(chosen) for chosen in rounds} == {3}
    counts = Counter(i for chosen in rounds for i in chosen)
    # 600 expected, a standard deviation of √(2000 · 0.3 · 0.7) = 20.5
    assert all(abs(counts[i] - 600) < 5 * 20.5 for i in range(10))
    assert sampling.sample(8, 1, 10) != rounds[0] or sampling.sample(8, 2, 10) != rounds[1]
    # As it always has, so that runs can be made again.
    expected = randomness.generator(7, "clients", 5).choice(10, size=3, replace=False)
    np.testing.assert_array_equal(rounds[4], np.sort(expected))
