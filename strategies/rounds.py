"""What one round has given, for whoever looks on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.app import ArrayRecord, MetricRecord

from bfl.posteriors import Posterior
from bfl.wire import posterior_from_arrays


@dataclass(frozen=True)
class Round:
    """What one round has given, for whoever looks on.

    Attributes:
        number: The round, from 1.
        posterior: The global posterior after it.
        metrics: What clients and pooling have measured.
        seconds: How long training and pooling took.
        clients: One entry for each client pooled, see ``strategies.client_records``.
    """

    number: int
    posterior: Posterior
    metrics: dict[str, float]
    seconds: float
    clients: Sequence[Mapping[str, Any]] = ()


def finished_round(
    number: int,
    arrays: ArrayRecord,
    trained: MetricRecord,
    evaluated: MetricRecord | None,
    seconds: float,
    clients: Sequence[Mapping[str, Any]] = (),
) -> Round:
    """Return the round that training, pooling and, where it was done, evaluation have given."""
    merged: dict[str, Any] = {**trained, **(evaluated or {})}
    return Round(number, posterior_from_arrays(arrays), merged, seconds, clients)
