"""Record of a run's partition: the table of clients and classes, and a digest."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bfl.data.partitions.base import Indices


@dataclass(frozen=True)
class PartitionManifest:
    """Numbers of examples by client and class, and digests of the examples.

    Attributes:
        num_examples: The number of examples of each client (K,).
        class_counts: The number of examples of each client and class (K, C).
        client_sha256: The digest of each client's indices, as little-endian int64 in their order.
        sha256: The digest of the whole partition: of the clients' digests, joined.
    """

    num_examples: tuple[int, ...]
    class_counts: tuple[tuple[int, ...], ...]
    client_sha256: tuple[str, ...]
    sha256: str

    @classmethod
    def of(cls, labels: Indices, parts: Sequence[Indices], num_classes: int) -> PartitionManifest:
        """Return the manifest of a partition.

        Args:
            labels: The training labels (N,).
            parts: The clients' indices, as ``Partition.split`` returns them.
            num_classes: The number of classes C, counting those without an example.
        """
        counts = [np.bincount(labels[part], minlength=num_classes).tolist() for part in parts]
        digests = [
            hashlib.sha256(np.asarray(part).astype("<i8").tobytes()).hexdigest() for part in parts
        ]
        return cls(
            num_examples=tuple(len(part) for part in parts),
            class_counts=tuple(tuple(row) for row in counts),
            client_sha256=tuple(digests),
            sha256=hashlib.sha256("".join(digests).encode()).hexdigest(),
        )

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> PartitionManifest:
        """Return the manifest that ``to_dict`` saved, also after a passage through JSON."""
        return cls(
            num_examples=tuple(saved["num_examples"]),
            class_counts=tuple(tuple(row) for row in saved["class_counts"]),
            client_sha256=tuple(saved["client_sha256"]),
            sha256=saved["sha256"],
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest as JSON knows it: lists, numbers and strings."""
        return {
            **asdict(self),
            "num_examples": list(self.num_examples),
            "class_counts": [list(row) for row in self.class_counts],
            "client_sha256": list(self.client_sha256),
        }


def describe(labels: Indices, parts: Sequence[Indices], num_classes: int) -> dict[str, Any]:
    """Return the manifest of a partition, ready for JSON (see ``PartitionManifest.of``)."""
    return PartitionManifest.of(labels, parts, num_classes).to_dict()
