"""Record of a run's partition: the table of clients and classes, and digests of the examples."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from bfl.data.partitions.base import Indices


def describe(labels: Indices, parts: Sequence[Indices], num_classes: int) -> dict[str, Any]:
    """Return the record of a partition, ready for JSON.

    Args:
        labels: The training labels (N,).
        parts: The clients' indices, as ``Partition.split`` returns them.
        num_classes: The number of classes C, counting those without an example.

    Returns:
        ``num_examples`` of each client (K,), ``class_counts`` of each client and class (K, C);
        ``client_sha256``, the digest of each client's indices, as little-endian int64 in their
        order; ``sha256``, that of the clients' digests, joined.
    """
    digests = [hashlib.sha256(np.asarray(p).astype("<i8").tobytes()).hexdigest() for p in parts]
    return {
        "num_examples": [len(part) for part in parts],
        "class_counts": [np.bincount(labels[p], minlength=num_classes).tolist() for p in parts],
        "client_sha256": digests,
        "sha256": hashlib.sha256("".join(digests).encode()).hexdigest(),
    }
