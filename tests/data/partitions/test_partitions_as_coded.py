"""FedBE's published code: its step partition, and what its Dirichlet partition does beside ours."""

from collections import Counter

import numpy as np

from bfl.data.partitions import describe, partitions
from bfl.randomness import generator

CIFAR = np.repeat(np.arange(10), 400)


def table(parts, labels=CIFAR):
    return np.array(describe(labels, parts, int(labels.max()) + 1)["class_counts"])


def test_a_client_has_two_shards_and_a_few_of_every_class() -> None:
    """The code's 2 x 2,000 and 10 x 10 at a tenth: shards of 200, and 1 image of each class."""
    partition = partitions.create("step-overlapping")
    shared = 0
    for seed in range(40):
        parts = partition.split(CIFAR, 10, generator(seed))
        counts = table(parts)
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
        counts = table(parts)
        assert (counts >= 2).all()
        assert (counts.sum(axis=1) >= 10 + 20).all()
        least = min(least, int(table(plain.split(CIFAR, 10, generator(seed))).min()))
    assert least == 0
