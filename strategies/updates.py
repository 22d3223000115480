"""What clients send back: read, checked, and refused with a reason before it can reach the pool."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

from bfl.errors import BflError, PosteriorError
from bfl.experiments.results.client_numbers import impossible_numbers
from bfl.federation.client_metrics import NUM_EXAMPLES, recorded
from bfl.federation.exchanges import Exchange, unpacked
from bfl.federation.exchanges.direct import Direct
from bfl.federation.parts import Arrays, DeclaredArray
from bfl.federation.wire import ARRAYS, METRICS, arrays_beside, vectors_from_arrays
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.posterior import VECTORS

MOST_EXAMPLES = 2**53
"""More cannot be told apart as weights in float64."""

MOST_METRICS = 64
"""Metrics that one client may send: a record of a round has a line for each."""

GREATEST_METRIC = 1e100
"""The greatest absolute value of a metric: greater ones overflow where they are averaged, and no
axis can be drawn for them."""

GREATEST_VALUE, LEAST_VARIANCE = 1e60, 1e-60
"""Bounds of what is pooled. All of float32 lies within; beyond, in float64, the square of a mean
over a variance overflows, and a client that nothing else refuses would end the run."""

METRIC_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What a client may call a metric."""


class RefusedUpdateError(BflError):
    """A client's update is not what it should be; the message says in which way."""


@dataclass(frozen=True)
class ClientUpdate:
    """What one client has sent back.

    Attributes:
        partition_id: Which client it is.
        posterior: Its posterior.
        num_examples: Its number of training examples.
        metrics: What it has measured, under the client's own names.
        beside: What the parts of the method have it send beside its posterior.
    """

    partition_id: int
    posterior: Posterior
    num_examples: int
    metrics: dict[str, float]
    beside: Arrays = field(default_factory=dict)


def read_update(
    reply: Message,
    partition_id: int,
    sent: Posterior,
    *,
    manifest: Manifest | None = None,
    num_examples: int | None = None,
    most_examples: int = MOST_EXAMPLES,
    declared: Sequence[DeclaredArray] = (),
    exchange: Exchange | None = None,
) -> ClientUpdate:
    """Return the update in a client's reply.

    Checked are names, shapes, types, that all values are finite, that variances are positive and
    point parameters not below their minima, that the number of examples is the one that is
    known, or a whole one from 1 to the most that is believed, and that the arrays beside the
    posterior are those that the parts of the method declare.

    Args:
        reply: The reply; it holds content and not an error.
        partition_id: Which client it is from.
        sent: The posterior that the client was sent: its sizes and types are expected back.
        manifest: The parameters of the network, where the server knows them.
        num_examples: How many examples the client holds, where the server knows it.
        most_examples: The most that a client may claim where it does not.
        declared: What the client has to send beside its posterior.
        exchange: How posteriors travel; by default as they are.

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
        posterior=_posterior(arrays, sent, manifest, exchange or Direct()),
        num_examples=_num_examples(metrics.get(NUM_EXAMPLES), num_examples, most_examples),
        metrics=_numbers(metrics),
        beside=_beside(content, declared),
    )


def _posterior(
    arrays: ArrayRecord, sent: Posterior, manifest: Manifest | None, exchange: Exchange
) -> Posterior:
    try:
        posterior = unpacked(exchange, vectors_from_arrays(arrays), sent)
    except PosteriorError as error:
        raise RefusedUpdateError(str(error)) from error
    except Exception as error:  # whatever NumPy makes of bytes that a client has chosen
        raise RefusedUpdateError(f"an array cannot be read: {error}") from error
    for name in VECTORS:
        given, expected = getattr(posterior, name).dtype, getattr(sent, name).dtype
        if given != expected:
            raise RefusedUpdateError(f"{name} has type {given}; expected {expected}")
    try:
        posterior.check(like=sent)
        _check_magnitudes(posterior)
        if manifest:
            manifest.check(posterior)
    except PosteriorError as error:
        raise RefusedUpdateError(str(error)) from error
    return posterior


def _beside(content: RecordDict, declared: Sequence[DeclaredArray]) -> Arrays:
    try:
        arrays = arrays_beside(content)
    except Exception as error:  # whatever NumPy makes of bytes that a client has chosen
        raise RefusedUpdateError(f"an array beside the posterior: {error}") from error
    expected = {array.name for array in declared}
    if arrays.keys() != expected:
        raise RefusedUpdateError(
            f"the arrays beside the posterior are {', '.join(sorted(arrays)) or 'none'}; expected "
            f"{', '.join(sorted(expected)) or 'none'}"
        )
    for array in declared:
        problem = array.problem(arrays[array.name])
        if problem:
            raise RefusedUpdateError(problem)
    return arrays


def _check_magnitudes(posterior: Posterior) -> None:
    for name in VECTORS:
        vector = getattr(posterior, name)
        if vector.dtype.itemsize > 4 and vector.size and np.abs(vector).max() > GREATEST_VALUE:
            raise PosteriorError(f"{name} has values beyond ±{GREATEST_VALUE:g}")
    variance = posterior.variance
    if variance.dtype.itemsize > 4 and variance.size and variance.min() < LEAST_VARIANCE:
        raise PosteriorError(f"variance has values below {LEAST_VARIANCE:g}")


def _num_examples(given: Any, known: int | None, most: int) -> int:
    whole = isinstance(given, int) and not isinstance(given, bool)
    if not whole and not (isinstance(given, float) and given.is_integer()):
        raise RefusedUpdateError(f"{NUM_EXAMPLES} is {given!r}; expected a whole number from 1")
    if known is not None and given != known:
        raise RefusedUpdateError(
            f"{NUM_EXAMPLES} is {given!r}; this client holds {known}, as the server has assigned "
            "or the node has declared before the first round"
        )
    if not 1 <= given <= most:
        raise RefusedUpdateError(
            f"{NUM_EXAMPLES} is {given!r}; expected 1 to {most}, the most that is believed "
            "(max-examples)"
        )
    return int(given)


def _numbers(metrics: MetricRecord) -> dict[str, float]:
    """Return the metrics that are single numbers and not absurd; others are left out.

    Raises:
        RefusedUpdateError: There are too many, or one has a name that no metric may have.
    """
    if len(metrics) > MOST_METRICS:
        raise RefusedUpdateError(f"there are {len(metrics)} metrics; allowed: {MOST_METRICS}")
    for name in metrics:
        if not METRIC_NAME.fullmatch(name):
            raise RefusedUpdateError(
                f"a metric is called {name[:80]!r}; allowed: up to 64 letters, digits, '.', '_' "
                "and '-'"
            )
    return {
        name: float(value)
        for name, value in metrics.items()
        if name != NUM_EXAMPLES and isinstance(value, int | float) and abs(value) <= GREATEST_METRIC
    }


def mean_metrics(updates: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, float]:
    """Return what a round's record says of its clients' metrics, under the names of the record.

    Each is averaged with the numbers of examples of the clients that have sent it, and stands in
    the clients' namespace; the total number of examples is the server's own. What cannot have been
    measured is left out, so no client moves a mean beyond what honest ones could.

    Args:
        updates: Each client's number of examples and what it has measured.
    """
    means: dict[str, float] = {NUM_EXAMPLES: sum(count for count, _ in updates)}
    believed = [(count, _believed(measured)) for count, measured in updates]
    for name in dict.fromkeys(name for _, measured in believed for name in measured):
        senders = [(measured[name], count) for count, measured in believed if name in measured]
        values, counts = zip(*senders, strict=True)
        means[recorded(name)] = float(np.average(values, weights=counts))
    return means


def _believed(measured: Mapping[str, float]) -> dict[str, float]:
    impossible = dict(impossible_numbers(measured))
    return {name: value for name, value in measured.items() if name not in impossible}
