"""The clients' parts of the test data, and the record of a partition: its table, its digests."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from bfl.data.partitions.base import Indices


def own_test_split(
    train_labels: Indices,
    parts: Sequence[Indices],
    test_labels: Indices,
    generator: np.random.Generator,
) -> list[Indices]:
    """Return the test examples of every client, with the proportions of its training examples.

    The test examples of a class are dealt out in proportion to how many of its training examples
    each client has, rounded by largest remainders with chance between equal ones. So no example
    lies with two clients, and each lies with one unless no client trains on its class.

    Source: HBFL (2023), section 5, evaluates personal models on the clients' own test data; the
    code of federated mutual learning (Shen et al. 2020) draws them with the proportions of the
    training data, some of them for several clients.

    Args:
        train_labels: The labels (N,) of all training examples, integers from 0.
        test_labels: The labels (M,) of all test examples.
        generator: The source of the randomness, keyed by the run's seed.

    Returns:
        K disjoint arrays of positions among the test examples, in random order; some may be empty.
    """
    classes = int(max(train_labels.max(), test_labels.max())) + 1
    counts = np.stack([np.bincount(train_labels[part], minlength=classes) for part in parts])
    held: list[list[Indices]] = [[] for _ in parts]
    for label in range(classes):
        examples = generator.permutation(np.flatnonzero(test_labels == label))
        if not counts[:, label].any():
            continue
        # In whole numbers, so that equal remainders are equal.
        own = counts[:, label]
        shares, remainders = np.divmod(examples.size * own, own.sum())
        order = np.lexsort((generator.permutation(len(parts)), -remainders))
        shares[order[: examples.size - shares.sum()]] += 1
        for client, part in enumerate(np.split(examples, np.cumsum(shares)[:-1])):
            held[client].append(part)
    return [generator.permutation(np.concatenate(part)).astype(np.int64) for part in held]


def describe(labels: Indices, parts: Sequence[Indices], num_classes: int) -> dict[str, Any]:
    """Return the record of a partition of C classes, ready for JSON.

    Returns:
        ``num_examples`` of each client (K,), ``class_counts`` of each client and class (K, C);
        ``client_sha256``, the digest of each client's indices, as little-endian int64 in their
        order; ``sha256``, that of the clients' digests, joined.
    """
    counts = [np.bincount(labels[p], minlength=num_classes) for p in parts]
    digests = [hashlib.sha256(np.asarray(p).astype("<i8").tobytes()).hexdigest() for p in parts]
    return {
        "num_examples": [len(part) for part in parts],
        "class_counts": [each.tolist() for each in counts],
        "client_sha256": digests,
        "sha256": hashlib.sha256("".join(digests).encode()).hexdigest(),
    }
