"""The table of clients and classes, and the digests."""

import hashlib
import json

import numpy as np

from bfl.data.partitions import describe

LABELS = np.array([0, 2, 2, 0, 1])
PARTS = [np.array([4, 0, 1]), np.array([2, 3])]


def test_the_table_counts_clients_and_classes_and_survives_json() -> None:
    saved = describe(LABELS, PARTS, num_classes=4)
    assert saved["num_examples"] == [3, 2]
    assert saved["class_counts"] == [[1, 1, 1, 0], [1, 0, 1, 0]]
    assert json.loads(json.dumps(saved)) == saved


def test_the_digest_is_of_little_endian_int64() -> None:
    saved = describe(LABELS, PARTS, 3)
    expected = hashlib.sha256((2).to_bytes(8, "little") + (3).to_bytes(8, "little")).hexdigest()
    assert saved["client_sha256"][1] == expected
    assert saved == describe(LABELS, [part.astype(np.int32) for part in PARTS], 3)


def test_the_digest_tells_partitions_apart() -> None:
    moved = [np.array([4, 0]), np.array([1, 2, 3])]
    reordered = [np.array([0, 4, 1]), np.array([2, 3])]
    digests = {describe(LABELS, parts, 3)["sha256"] for parts in (PARTS, moved, reordered)}
    assert len(digests) == 3
