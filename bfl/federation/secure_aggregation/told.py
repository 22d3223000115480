"""Digest of what all clients of a masked round have to be told alike.

A server that tells one client something else than the others, another model to begin with or a
grid on which the others' statistics are nothing, reads that client's update in the sum. So masks
are made with a digest of it: those of clients that were told different things do not cancel.

Source: Pasquini et al. (2022), "Eluding secure aggregation in federated learning via model
inconsistency": a client's masks follow from a digest of the model that it was sent. Here all else
that is alike goes into it as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flwr.app import ArrayRecord, RecordDict

from bfl.federation.wire import ARRAYS, CONFIG, EXTRAS
from bfl.texts import from_json

OF_ONE_CLIENT = {
    "partition-id",
    "pooled-round",
    "damping",
    "examples",
    "test-examples",
    "run-folder",
}
"""Entries of a task for one client alone, or for those that look where the server has the data."""


def told_digest(
    content: RecordDict,
    exponents: Sequence[int],
    total: float,
    without_paths: Callable[[dict[str, Any]], Mapping[str, Any]],
) -> bytes:
    """Return a digest, 32 bytes, of what a round tells all of its clients.

    That is the posterior, the arrays beside it, the exponents, the sum of their γ, and of the task
    all that is not one client's: the run's configuration without where data lie, and what a
    ServerApp has added.

    Args:
        content: The message that asks a client to train.
        exponents: The exponents of the statistics and, last, of the point parameters.
        total: The sum of all clients' γ, which makes weights of them.
        without_paths: Makes of a run's configuration the one without where data lie.
    """
    config: Any = content[CONFIG]
    alike = {key: value for key, value in config.items() if key not in OF_ONE_CLIENT}
    alike["configuration"] = without_paths(from_json(alike["configuration"]))
    digest = hashlib.sha256(repr((_sorted(alike), list(exponents), total.hex())).encode())
    for name in (ARRAYS, EXTRAS):
        record = content.get(name)
        for key, array in sorted(record.items()) if isinstance(record, ArrayRecord) else ():
            header = (name, key, array.dtype, tuple(array.shape), array.stype, len(array.data))
            digest.update(repr(header).encode())
            digest.update(array.data)
    return digest.digest()


def _sorted(value: Any) -> Any:
    """Return a value whose text does not depend on the order of its keys."""
    if isinstance(value, Mapping):
        return [(key, _sorted(value[key])) for key in sorted(value)]
    return value
