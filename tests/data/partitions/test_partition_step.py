"""The step partition against the papers' numbers, FedBE's published code, and any others."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bfl.data.partitions.base import describe, partitions
from bfl.errors import ConfigurationError
from bfl.randomness import generator


def counted(labels, parts):
    return np.array(describe(labels, parts, int(labels.max()) + 1)["class_counts"])


def table(labels, clients, seed=0, **given):
    """Return the clients' numbers of examples of each class, (K, C)."""
    partition = partitions.create("step", {k.replace("_", "-"): v for k, v in given.items()})
    return counted(labels, partition.split(labels, clients, generator(seed)))


@pytest.mark.parametrize(
    ("classes", "each", "clients", "majors", "expected"),
    [
        (10, 4000, 10, 2, {1960: 2, 10: 8}),  # FedBE, CIFAR-10
        (200, 450, 100, 2, {351: 2, 1: 198}),  # Tiny-ImageNet
        (100, 400, 100, 5, {61: 5, 1: 95}),  # CIFAR-100
    ],
)
def test_numbers_of_the_papers(classes, each, clients, majors, expected) -> None:
    labels = generator(9).permutation(np.repeat(np.arange(classes), each))
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


# FedBE's published code: its step partition, and what its Dirichlet partition does beside ours.

CIFAR = np.repeat(np.arange(10), 400)


def test_a_client_has_two_shards_and_a_few_of_every_class() -> None:
    """The code's 2 x 2,000 and 10 x 10 at a tenth: shards of 200, and 1 image of each class."""
    partition = partitions.create("step-overlapping")
    shared = 0
    for seed in range(40):
        parts = partition.split(CIFAR, 10, generator(seed))
        counts = counted(CIFAR, parts)
        assert (counts.sum(axis=1) == 2 * 200 + 10).all()
        assert (counts.sum(axis=0) == 400 + 10).all()
        for row in counts:
            major = Counter(row.tolist())
            assert major in ({201: 2, 1: 8}, {401: 1, 1: 9})
            shared += 401 in major
    # Of the 19 shards beside a client's first one is of the same class.
    assert abs(shared / 400 - 1 / 19) < 0.03


def test_minor_images_stand_twice_and_no_two_clients_share_one_as_minor() -> None:
    parts = partitions.create("step-overlapping", {"minor-examples": 3.0}).split(
        CIFAR, 10, generator(1)
    )
    times = np.bincount(np.concatenate(parts), minlength=CIFAR.size)
    assert Counter(times.tolist()) == {1: 3700, 2: 300}
    # Now and then it is the client whose shard it lies in.
    assert any(np.unique(part).size < part.size for part in parts)


def test_every_client_of_the_dirichlet_gets_what_is_guaranteed() -> None:
    settings = {"alpha": 0.1, "self-balancing": True, "min-partition-size": 10}
    given = partitions.create("dirichlet", {**settings, "guaranteed-examples": 2})
    plain = partitions.create("dirichlet", settings)
    least = 10
    for seed in range(5):
        parts = given.split(CIFAR, 10, generator(seed))
        held = np.concatenate(parts)
        assert np.unique(held).size == held.size == CIFAR.size
        counts = counted(CIFAR, parts)
        assert (counts >= 2).all()
        assert (counts.sum(axis=1) >= 10 + 20).all()
        least = min(least, int(counted(CIFAR, plain.split(CIFAR, 10, generator(seed))).min()))
    assert least == 0
