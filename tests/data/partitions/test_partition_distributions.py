"""What each partition promises about the classes of its clients."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bfl.data.partitions.base import describe, partitions
from bfl.data.partitions.shards import allot_shards, deal_classes
from bfl.errors import ConfigurationError
from bfl.randomness import generator

PAPER_LABELS = np.repeat(np.arange(10), 5000)


def table(labels, parts, num_classes: int = 10) -> np.ndarray:
    return np.array(describe(labels, parts, num_classes)["class_counts"])


# ------------------------------------------------------------------------------------- iid


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    clients=st.integers(1, 9),
    seed=st.integers(0, 1000),
)
def test_iid_clients_differ_by_one_example_at_most(sizes, clients: int, seed: int) -> None:
    labels = generator(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    assume(labels.size >= clients)
    counts = table(labels, partitions.create("iid").split(labels, clients, generator(seed)), 6)
    assert np.ptp(counts, axis=0).max() <= 1
    assert np.ptp(counts.sum(axis=1)) <= 1


def test_iid_left_over_examples_go_to_no_fixed_client() -> None:
    labels = np.zeros(7, int)
    larger = Counter(
        int(np.argmax([len(p) for p in partitions.create("iid").split(labels, 3, generator(s))]))
        for s in range(150)
    )
    assert min(larger[client] for client in range(3)) > 25


# ---------------------------------------------------------------------------------- shards


def test_shards_in_the_papers_setting() -> None:
    labels = generator(9).permutation(PAPER_LABELS)
    for seed in range(10):
        counts = table(labels, partitions.create("2-class").split(labels, 10, generator(seed)))
        assert np.all((counts == 2500).sum(axis=1) == 2)
        assert np.all(counts.sum(axis=1) == 5000)
        assert np.all((counts > 0).sum(axis=0) == 2)


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    clients=st.integers(1, 12),
    shards_per_client=st.integers(1, 8),
    seed=st.integers(0, 1000),
)
def test_shards_give_each_client_its_number_of_different_classes(
    sizes, clients: int, shards_per_client: int, seed: int
) -> None:
    labels = generator(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    shards = clients * shards_per_client
    possible = shards_per_client <= len(sizes) <= shards <= sum(min(s, clients) for s in sizes)
    partition = partitions.create("shards", {"shards-per-client": shards_per_client})
    if not possible:
        with pytest.raises(ConfigurationError, match=r"partition 'shards'|clients is"):
            partition.split(labels, clients, generator(seed))
        return
    counts = table(labels, partition.split(labels, clients, generator(seed)), 8)
    assert np.all((counts > 0).sum(axis=1) == shards_per_client)
    for column in counts.T[: len(sizes)]:
        assert np.ptp(column[column > 0]) <= 1  # a class's shards are of one size


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4), data=st.data())
def test_no_allotment_makes_the_largest_shard_smaller(sizes, data) -> None:
    clients = data.draw(st.integers(1, 5))
    limits = [min(size, clients) for size in sizes]
    shards = data.draw(st.integers(len(sizes), max(len(sizes), sum(limits))))
    counts = allot_shards(np.array(sizes), shards, clients, generator(0))
    assert sum(counts) == shards
    assert all(1 <= count <= limit for count, limit in zip(counts, limits, strict=True))
    others = itertools.product(*(range(1, limit + 1) for limit in limits))
    best = min(
        max(size / count for size, count in zip(sizes, other, strict=True))
        for other in others
        if sum(other) == shards
    )
    assert max(size / count for size, count in zip(sizes, counts, strict=True)) == best


def test_equal_classes_share_left_over_shards_by_chance() -> None:
    sizes, gainers = np.full(3, 50), Counter()
    for seed in range(150):
        counts = allot_shards(sizes, 4, 4, generator(seed))
        assert sorted(counts) == [1, 1, 2]
        gainers[int(np.argmax(counts))] += 1
    assert min(gainers[c] for c in range(3)) > 25


def test_shards_are_dealt_uniformly_over_all_allowed_deals() -> None:
    """4 clients, 2 of 4 classes each: there are 90 tables; chi-square over 9,000 deals."""
    seen: Counter[tuple] = Counter()
    for seed in range(9000):
        owners = deal_classes([2, 2, 2, 2], 4, generator(seed))
        assert all(len(set(holding)) == 2 for holding in owners)
        seen[tuple(tuple(sorted(holding)) for holding in owners)] += 1
    assert len(seen) == 90
    chi_square = sum((count - 100) ** 2 / 100 for count in seen.values())
    assert chi_square < 140  # 89 degrees of freedom: exceeded once in 2,000 times


# ------------------------------------------------------------------------------- dirichlet


@pytest.mark.slow
def test_dirichlet_proportions_have_the_mean_and_variance_of_the_law() -> None:
    clients, classes, alpha = 5, 10, 0.5
    labels = np.repeat(np.arange(classes), 400)
    partition = partitions.create("dirichlet", {"alpha": alpha})
    shares = np.concatenate(
        [
            (table(labels, partition.split(labels, clients, generator(seed))) / 400).T
            for seed in range(15)
        ]
    )  # (150 draws, clients)
    variance = (clients - 1) / (clients**2 * (clients * alpha + 1))
    # Cutting at whole examples rounds down, which costs the first clients at most one in 400.
    assert np.abs(shares.mean(axis=0) - 1 / clients).max() < 4 * np.sqrt(variance / 150) + 1 / 400
    assert abs(shares.var(axis=0).mean() / variance - 1) < 0.1
    # Proportions of one class add up to one: any two clients' are negatively correlated.
    off_diagonal = np.corrcoef(shares.T)[~np.eye(clients, dtype=bool)]
    assert abs(off_diagonal.mean() + 1 / (clients - 1)) < 0.02


def test_dirichlet_keeps_the_least_size_and_tries_further_seeds() -> None:
    labels = np.repeat(np.arange(3), 40)
    # About one draw in thirteen serves: eleven of one seed fail in 4 cases of 10.
    partition = partitions.create("dirichlet", {"alpha": 0.5, "min-partition-size": 15})
    for seed in range(10):
        assert min(map(len, partition.split(labels, 5, generator(seed)))) >= 15


# ----------------------------------------------------------------------- dirichlet, balanced


def given_although_full(counts: np.ndarray) -> int:
    """Return how many examples went to clients that had more than their share before."""
    before = np.cumsum(counts, axis=1) - counts
    return int(counts[before > counts.sum() / len(counts)].sum())


@pytest.mark.parametrize("balancing", [True, False])
def test_balanced_clients_get_nothing_once_they_have_more_than_their_share(balancing) -> None:
    labels = np.repeat(np.arange(10), 100)
    # Without the key nothing is balanced.
    said = {"self-balancing": True} if balancing else {}
    partition = partitions.create("dirichlet", {"alpha": 0.5, **said})
    counts = [table(labels, partition.split(labels, 10, generator(seed))) for seed in range(4)]
    given = [given_although_full(count) for count in counts]
    # The library's cuts round down, so that the last client may get one of a class.
    assert max(given) <= 10 if balancing else min(given) > 10
