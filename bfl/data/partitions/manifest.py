"""Record of a run's partition: the table of clients and classes, and digests of the examples."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.data.partitions.base import Indices


def describe(
    labels: npt.NDArray[Any], parts: Sequence[Indices], num_classes: int
) -> dict[str, Any]:
    """Return the record of a partition, ready for JSON.

    Args:
        labels: The training labels (N,); or (N, C) of 1 for each label that applies and else 0.
        parts: The clients' indices, as ``Partition.split`` returns them.
        num_classes: The number of classes C, counting those without an example.

    Returns:
        ``num_examples`` of each client (K,), ``class_counts`` of each client and class (K, C);
        ``client_sha256``, the digest of each client's indices, as little-endian int64 in their
        order; ``sha256``, that of the clients' digests, joined.
    """
    counts = (
        [labels[p].sum(axis=0) for p in parts]
        if labels.ndim == 2
        else [np.bincount(labels[p], minlength=num_classes) for p in parts]
    )
    digests = [hashlib.sha256(np.asarray(p).astype("<i8").tobytes()).hexdigest() for p in parts]
    return {
        "num_examples": [len(part) for part in parts],
        "class_counts": [each.astype(int).tolist() for each in counts],
        "client_sha256": digests,
        "sha256": hashlib.sha256("".join(digests).encode()).hexdigest(),
    }
