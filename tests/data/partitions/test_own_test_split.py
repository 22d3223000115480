"""Test data split over clients as their training data are; the record of a partition."""

import hashlib
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bfl.data.partitions.base import describe, own_test_split, partitions
from bfl.randomness import generator

TRAIN, TEST = np.repeat(np.arange(10), 500), np.repeat(np.arange(10), 100)


def counts(labels, parts, classes=10):
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts])


@pytest.mark.parametrize("name", [p.name for p in partitions.classes() if not p.behind_colon])
def test_a_client_is_tested_on_the_mixture_that_it_trains_on(name):
    test_labels = generator(1).permutation(TEST)
    parts = partitions.create(name).split(TRAIN, 10, generator(0))
    own = own_test_split(TRAIN, parts, test_labels, generator(0, "own"))
    # A client's share of the training examples of each class, of 100, up to rounding.
    held = counts(TRAIN, parts)
    shares = 100 * held / held.sum(axis=0)
    assert np.abs(counts(test_labels, own) - shares).max() < 1
    np.testing.assert_array_equal(np.sort(np.concatenate(own)), np.arange(TEST.size))


@settings(max_examples=50, deadline=None)
@given(
    train=st.lists(st.integers(0, 4), min_size=3, max_size=60),
    test=st.lists(st.integers(0, 5), min_size=1, max_size=40),
    clients=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_no_example_twice_and_none_of_a_class_that_a_client_lacks(train, test, clients, seed):
    train_labels, test_labels = np.array(train), np.array(test)
    parts = np.array_split(generator(seed).permutation(len(train)), clients)
    own = own_test_split(train_labels, parts, test_labels, generator(seed, "own"))
    assert len(own) == clients
    assert all(part.dtype == np.int64 for part in own)
    every = np.concatenate(own)
    known = np.flatnonzero(np.isin(test_labels, train_labels))
    np.testing.assert_array_equal(np.sort(every), known)
    trained, tested = counts(train_labels, parts, 6), counts(test_labels, own, 6)
    assert not tested[trained == 0].any()
    again = own_test_split(train_labels, parts, test_labels, generator(seed, "own"))
    assert all(np.array_equal(a, b) for a, b in zip(own, again, strict=True))


def test_chance_decides_which_examples_and_who_gets_what_is_left_over():
    parts = [np.array([0, 3]), np.array([1, 4]), np.array([2, 5])]
    labels = np.array([0, 0, 0, 1, 1, 1])
    larger, holders = Counter(), Counter()
    for seed in range(300):
        own = own_test_split(labels, parts, np.array([0, 1, 1, 0, 0, 0]), generator(seed))
        sizes = counts(np.array([0, 1, 1, 0, 0, 0]), own, 2)[:, 0]
        assert sorted(sizes) == [1, 1, 2]
        larger[int(sizes.argmax())] += 1
        holders[next(k for k, part in enumerate(own) if 0 in part)] += 1
    assert min(larger[k] for k in range(3)) > 60
    assert min(holders[k] for k in range(3)) > 60


LABELS = np.array([0, 2, 2, 0, 1])
PARTS = [np.array([4, 0, 1]), np.array([2, 3])]


def test_the_record_counts_clients_and_classes_and_tells_partitions_apart() -> None:
    saved = describe(LABELS, PARTS, num_classes=4)
    assert saved["num_examples"] == [3, 2]
    assert saved["class_counts"] == [[1, 1, 1, 0], [1, 0, 1, 0]]
    assert json.loads(json.dumps(saved)) == saved
    expected = hashlib.sha256((2).to_bytes(8, "little") + (3).to_bytes(8, "little")).hexdigest()
    assert saved["client_sha256"][1] == expected
    assert saved == describe(LABELS, [part.astype(np.int32) for part in PARTS], 4)
    moved = [np.array([4, 0]), np.array([1, 2, 3])]
    reordered = [np.array([0, 4, 1]), np.array([2, 3])]
    digests = {describe(LABELS, parts, 3)["sha256"] for parts in (PARTS, moved, reordered)}
    assert len(digests) == 3
