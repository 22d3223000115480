"""Updates of clients: read and checked once, and the means, sums and records of those pooled."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import ArrayRecord, Message, MetricRecord

from bfl.aggregation.pooling import normalised
from bfl.errors import BflError, PosteriorError
from bfl.federation.client_metrics import NUM_EXAMPLES, of_each_client
from bfl.federation.parts import Arrays, DeclaredArray, extras_problem
from bfl.federation.wire import ARRAYS, EXTRAS, METRICS, extra_arrays, vectors_from_arrays
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.posterior import VECTORS, Vector

MOST_EXAMPLES = 2**53
"""More cannot be told apart as weights in float64."""

MOST_METRICS = 64
"""Metrics that one client may send: a record of a round has a line for each."""

GREATEST_METRIC = 1e100
"""The greatest absolute value of a metric: greater ones overflow where they are averaged, and no
axis can be drawn for them."""

LEAST_VARIANCE = 1e-60
"""The least variance of what is pooled. All of float32 lies above; below, in float64, the square of
a mean over a variance overflows, and a client that nothing else refuses would end the run."""

METRIC_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Pattern of the names that a client may give to metrics."""


Unpack = Callable[[Mapping[str, Vector], Posterior], Posterior]
"""Makes a client's posterior of the vectors that have come, and of the posterior it was sent."""


class RefusedUpdateError(BflError):
    """A client's update is not what it should be; the message says in which way."""


@dataclass(frozen=True)
class ClientUpdate:
    """Update that one client has sent back.

    Attributes:
        metrics: What it has measured, under the client's own names.
        extras: What the parts of the method have it send besides its posterior.
        impossible: Numbers that it has sent as metrics and cannot have measured.
    """

    partition_id: int
    posterior: Posterior
    num_examples: int
    metrics: dict[str, float]
    extras: Arrays = field(default_factory=dict)
    impossible: dict[str, float] = field(default_factory=dict)


def read_evaluation(reply: Message, most_examples: int) -> tuple[int, dict[str, float]]:
    """Return the number of examples and the metrics of a client that has evaluated.

    Raises:
        RefusedUpdateError: They are not what they should be.
    """
    metrics = reply.content.get(METRICS)
    if not isinstance(metrics, MetricRecord):
        raise RefusedUpdateError(f"the reply has no record '{METRICS}' of metrics")
    num_examples = _num_examples(metrics.get(NUM_EXAMPLES), None, most_examples)
    return num_examples, _measured(metrics)[0]


def read_update(
    reply: Message,
    partition_id: int,
    sent: Posterior,
    *,
    manifest: Manifest | None = None,
    num_examples: int | None = None,
    most_examples: int = MOST_EXAMPLES,
    declared: Sequence[DeclaredArray] = (),
    unpack: Unpack | None = None,
) -> ClientUpdate:
    """Return the update in a client's reply.

    Checked are names, shapes, types, that all values are finite, that variances are positive and
    point parameters not below their minima, that the number of examples is the one that is
    known, or a whole one from 1 to the most that is believed, and that the arrays besides the
    posterior are those that the parts of the method declare.

    Args:
        reply: The reply; it holds content and not an error.
        sent: The posterior that the client was sent: its sizes and types are expected back.
        manifest: The parameters of the network, where the server knows them.
        num_examples: How many examples the client holds, where the server knows it.
        most_examples: The most that a client may claim where it does not.
        declared: What the client has to send besides its posterior.
        unpack: How an exchange unpacks what has come; None: it is the posterior's three vectors.

    Raises:
        RefusedUpdateError: Something is not as it should be.
    """
    content = reply.content
    arrays, metrics = content.get(ARRAYS), content.get(METRICS)
    if not isinstance(arrays, ArrayRecord):
        raise RefusedUpdateError(f"the reply has no record '{ARRAYS}' of arrays")
    if not isinstance(metrics, MetricRecord):
        raise RefusedUpdateError(f"the reply has no record '{METRICS}' of metrics")
    posterior = _posterior(arrays, sent, manifest, unpack)
    count = _num_examples(metrics.get(NUM_EXAMPLES), num_examples, most_examples)
    measured, impossible = _measured(metrics)
    extras: Arrays = {}
    if declared or EXTRAS in content:
        try:
            extras = extra_arrays(content)
        except Exception as error:  # whatever NumPy makes of bytes that a client has chosen
            raise RefusedUpdateError(f"an array besides the posterior: {error}") from error
        if problem := extras_problem(extras, declared):
            raise RefusedUpdateError(f"besides the posterior it has {problem}")
    return ClientUpdate(partition_id, posterior, count, measured, extras, impossible)


DIVERGED = "; if training has diverged, a lower learning-rate helps"


def _posterior(
    arrays: ArrayRecord, sent: Posterior, manifest: Manifest | None, unpack: Unpack | None
) -> Posterior:
    try:
        vectors = vectors_from_arrays(arrays)
        posterior = unpack(vectors, sent) if unpack else Posterior.of_vectors(vectors)
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
        if posterior.variance.min(initial=1.0) < LEAST_VARIANCE:
            raise PosteriorError(f"variance has values below {LEAST_VARIANCE:g}")
        if manifest:
            manifest.check(posterior)
    except PosteriorError as error:
        diverged = "" if np.isfinite(posterior.mean).all() else DIVERGED
        raise RefusedUpdateError(f"{error}{diverged}") from error
    return posterior


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


def _measured(metrics: MetricRecord) -> tuple[dict[str, float], dict[str, float]]:
    """Return the metrics that are single numbers, and apart those that nobody can have measured."""
    # With it come all metrics, which no server needs before a client has measured some.
    from bfl.experiments.results.clients import impossible_numbers

    if len(metrics) > MOST_METRICS:
        raise RefusedUpdateError(f"there are {len(metrics)} metrics; allowed: {MOST_METRICS}")
    measured: dict[str, float] = {}
    for name, value in metrics.items():
        if not METRIC_NAME.fullmatch(name):
            raise RefusedUpdateError(
                f"a metric is called {name[:80]!r}; allowed: up to 64 letters, digits, '.', '_' "
                "and '-'"
            )
        single = isinstance(value, int | float) and abs(value) <= GREATEST_METRIC
        if single and name != NUM_EXAMPLES:
            measured[name] = float(value)  # type: ignore[arg-type]
    impossible = dict(impossible_numbers(measured))
    for name in impossible:
        del measured[name]
    return measured, impossible


def mean_metrics(updates: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, float]:
    """Return clients' metrics averaged with the numbers of examples of those that have sent each.

    Args:
        updates: Each client's number of examples and what it has measured.
    """
    sent: dict[str, tuple[list[float], list[int]]] = {}
    for count, measured in updates:
        for name, value in measured.items():
            values, counts = sent.setdefault(name, ([], []))
            values.append(value)
            counts.append(count)
    means: dict[str, float] = {}
    for name, (values, counts) in sent.items():
        means[name] = float(np.average(values, weights=counts))
    return means


class CombinedExtras:
    """Sums and means of arrays besides the posterior over the pooled clients, in float64.

    The memory does not grow with the number of clients.
    """

    def __init__(self, declared: Sequence[DeclaredArray]) -> None:
        self._declared = declared
        self._sums: dict[str, npt.NDArray[np.float64]] = {
            array.name: np.zeros(array.shape) for array in declared
        }
        self._weight = 0.0

    def add(self, arrays: Arrays, weight: float) -> None:
        """Add a client's arrays; ``weight`` is its own in the pooling, in the scale of all."""
        self._weight += weight
        for array in self._declared:
            sent = arrays[array.name].astype(np.float64)
            self._sums[array.name] += sent if array.combined == "sum" else weight * sent

    def combined(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return the sum or the weighted mean of each array, by name.

        Raises:
            ValueError: A mean is asked for, and no client with a weight has been added.
        """
        if self._weight <= 0 and any(array.combined != "sum" for array in self._declared):
            raise ValueError("nothing to average: no client with a positive weight was added")
        return {
            array.name: self._sums[array.name]
            if array.combined == "sum"
            else self._sums[array.name] / self._weight
            for array in self._declared
        }


@dataclass(frozen=True)
class PooledClient:
    """A client whose update was pooled, without its posterior.

    Attributes:
        metrics: What it has measured; nothing where its update is a part of a sum alone.
        weight: Its weight, in the scale of all others'; None where its update is not seen.
    """

    partition_id: int
    num_examples: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    weight: float | None = None


def client_entries(clients: Sequence[PooledClient]) -> list[dict[str, Any]]:
    """Return one entry for each client pooled, in the order of partition ids.

    An entry has ``client``, the partition id; ``num-examples``; what the client has measured (the
    negative log-likelihood per example and the divergence from the prior of its last epoch, in
    nats, its seconds, and where it has test data of its own the accuracy of its posterior on them
    and their number); and ``weight``, its share ω_k of all weights. Of clients whose updates nobody
    sees it is the first two.
    """
    shares: list[float] = []
    if clients and clients[0].weight is not None:
        shares = normalised([client.weight or 0.0 for client in clients])
    entries: list[dict[str, Any]] = []
    for place, client in enumerate(clients):
        entry: dict[str, Any] = {"client": client.partition_id, NUM_EXAMPLES: client.num_examples}
        for name in sorted(client.metrics):
            if of_each_client(name):
                entry[name] = client.metrics[name]
        if shares:
            entry["weight"] = shares[place]
        entries.append(entry)
    return entries
