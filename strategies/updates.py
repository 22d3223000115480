"""What clients send back: read, checked, and refused with a reason before it can reach the pool."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord

from bfl.errors import BflError, PosteriorError
from bfl.posteriors import Posterior
from bfl.wire import ARRAYS, METRICS, VECTORS, posterior_from_arrays

MOST_EXAMPLES = 2**53
"""More cannot be told apart as weights in float64."""


class RefusedUpdateError(BflError):
    """A client's update is not what it should be; the message says in which way."""


@dataclass(frozen=True)
class ClientUpdate:
    """What one client has sent back.

    Attributes:
        partition_id: Which client it is.
        posterior: Its posterior.
        num_examples: Its number of training examples.
        metrics: All that it has measured.
    """

    partition_id: int
    posterior: Posterior
    num_examples: int
    metrics: dict[str, float]


def read_update(reply: Message, partition_id: int, sent: Posterior) -> ClientUpdate:
    """Return the update in a client's reply.

    Checked are names, shapes, types, that all values are finite, that variances are positive, and
    that the number of examples is a whole one from 1.

    Args:
        reply: The reply; it holds content and not an error.
        partition_id: Which client it is from.
        sent: The posterior that the client was sent: its sizes and types are expected back.

    Raises:
        RefusedUpdateError: Something is not as it should be.
    """
    content = reply.content
    arrays, metrics = content.get(ARRAYS), content.get(METRICS)
    if not isinstance(arrays, ArrayRecord):
        raise RefusedUpdateError(f"the reply has no record '{ARRAYS}' of arrays")
    if not isinstance(metrics, MetricRecord):
        raise RefusedUpdateError(f"the reply has no record '{METRICS}' of metrics")
    return ClientUpdate(
        partition_id=partition_id,
        posterior=_posterior(arrays, sent),
        num_examples=_num_examples(metrics.get("num-examples")),
        metrics=_numbers(metrics),
    )


def _posterior(arrays: ArrayRecord, sent: Posterior) -> Posterior:
    if set(arrays) != set(VECTORS):
        raise RefusedUpdateError(
            f"the arrays are {', '.join(sorted(arrays)) or 'none'}; expected {', '.join(VECTORS)}"
        )
    try:
        posterior = posterior_from_arrays(arrays)
    except Exception as error:  # whatever NumPy makes of bytes that a client has chosen
        raise RefusedUpdateError(f"an array cannot be read: {error}") from error
    for name in VECTORS:
        given, expected = getattr(posterior, name).dtype, getattr(sent, name).dtype
        if given != expected:
            raise RefusedUpdateError(f"{name} has type {given}; expected {expected}")
    try:
        posterior.check(like=sent)
    except PosteriorError as error:
        raise RefusedUpdateError(str(error)) from error
    return posterior


def _num_examples(given: Any) -> int:
    whole = isinstance(given, int) and not isinstance(given, bool)
    if not whole and not (isinstance(given, float) and given.is_integer()):
        raise RefusedUpdateError(f"num-examples is {given!r}; expected a whole number from 1")
    if not 1 <= given <= MOST_EXAMPLES:
        raise RefusedUpdateError(f"num-examples is {given!r}; expected 1 to 2^53")
    return int(given)


def _numbers(metrics: MetricRecord) -> dict[str, float]:
    """Return the metrics that are single finite numbers; others say nothing and are left out."""
    return {
        key: float(value)
        for key, value in metrics.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }


def mean_metrics(metrics: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """Return the metrics of all clients, averaged with their numbers of examples; and their total.

    A metric that some clients have not sent is the average of those that have.

    Args:
        metrics: What each client has measured; all have ``num-examples``.
    """
    names = dict.fromkeys(name for measured in metrics for name in measured)
    means: dict[str, float] = {"num-examples": sum(m["num-examples"] for m in metrics)}
    for name in names:
        if name != "num-examples":
            senders = [measured for measured in metrics if name in measured]
            means[name] = float(
                np.average(
                    [measured[name] for measured in senders],
                    weights=[measured["num-examples"] for measured in senders],
                )
            )
    return means
