"""The step partition against the papers' numbers, and what it promises for any others."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bfl.data.partitions import describe, partitions
from bfl.errors import ConfigurationError
from bfl.randomness import generator


def table(labels, clients, seed=0, **given):
    """Return the clients' numbers of examples of each class, (K, C)."""
    partition = partitions.create("step", {k.replace("_", "-"): v for k, v in given.items()})
    parts = partition.split(labels, clients, generator(seed))
    return np.array(describe(labels, parts, int(labels.max()) + 1)["class_counts"])


@pytest.mark.parametrize("order", ["sorted", "unsorted"])
@pytest.mark.parametrize(
    ("classes", "each", "clients", "majors", "expected"),
    [
        (10, 4000, 10, 2, {1960: 2, 10: 8}),  # FedBE, CIFAR-10
        (200, 450, 100, 2, {351: 2, 1: 198}),  # Tiny-ImageNet
        (100, 400, 100, 5, {61: 5, 1: 95}),  # CIFAR-100
        (10, 1000, 10, 2, {488: 2, 3: 8}),  # a quarter of the first
    ],
)
def test_numbers_of_the_papers(order, classes, each, clients, majors, expected) -> None:
    labels = np.repeat(np.arange(classes), each)
    if order == "unsorted":
        labels = generator(9).permutation(labels)
    for row in table(labels, clients, major_classes=majors):
        assert Counter(row.tolist()) == expected


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(30, 60), min_size=1, max_size=6),
    clients=st.integers(1, 8),
    majors=st.integers(1, 6),
    minor=st.sampled_from([0.05, 1.0, 2.0]),
    seed=st.integers(0, 1000),
)
def test_every_client_has_its_classes(sizes, clients, majors, minor, seed) -> None:
    labels = generator(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    chosen = {"major_classes": majors, "minor_examples": minor}
    if majors > len(sizes) or clients * majors < len(sizes):
        with pytest.raises(ConfigurationError, match="major-classes"):
            table(labels, clients, seed, **chosen)
        return
    counts = table(labels, clients, seed, **chosen)
    few = [max(1, int(minor * size + 0.5)) if minor < 1 else int(minor) for size in sizes]
    assert (counts.sum(axis=0) == sizes).all()
    assert (counts >= few).all()
    # A client's major classes are those of which it has more, if there is more to be had.
    assert ((counts > few).sum(axis=1) <= majors).all()
    for column, minor_count in zip(counts.T, few, strict=True):
        many = column[column > minor_count]
        assert many.size == 0 or np.ptp(many) <= 1


def test_which_classes_are_whose_and_which_examples_is_random() -> None:
    labels = np.repeat(np.arange(4), 100)
    pairs, holders = Counter(), Counter()
    partition = partitions.create("step")
    for seed in range(300):
        parts = partition.split(labels, 4, generator(seed))
        majors = [np.flatnonzero(np.bincount(labels[part]) > 1) for part in parts]
        pairs[tuple(majors[0])] += 1
        holders[next(k for k, part in enumerate(parts) if 0 in part)] += 1
    # 6 pairs of classes for the first client, and image 0 mostly with one of its class' two.
    assert len(pairs) == 6
    assert min(pairs.values()) > 25
    assert min(holders[k] for k in range(4)) > 45
