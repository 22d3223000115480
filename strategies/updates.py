"""Updates of clients, each read and checked by itself."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord

from bfl.errors import BflError, PosteriorError
from bfl.federation import client_metrics as names
from bfl.federation.parts import Arrays, DeclaredArray, extras_problem
from bfl.federation.wire import ARRAYS, EXTRAS, METRICS, extra_arrays, vectors_from_arrays
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.posterior import VECTORS

if TYPE_CHECKING:
    from bfl.evaluation.metrics import Metric

MOST_EXAMPLES = 2**53  # more cannot be told apart as weights in float64
MOST_METRICS = 64  # metrics that one client may send: a record of a round has a line for each

GREATEST_METRIC = 1e100
"""The greatest absolute value of a metric: greater ones overflow where they are averaged, and no
axis can be drawn for them."""

METRIC_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Pattern of the names that a client may give to metrics."""

LEAST_VARIANCE = 1e-60
"""The least variance of what is pooled. All of float32 lies above; below, in float64, the square of
a mean over a variance overflows, and a client that nothing else refuses would end the run."""

DIVERGED = "; if training has diverged, a lower learning-rate helps"


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


def read_update(
    reply: Message,
    partition_id: int,
    sent: Posterior,
    *,
    manifest: Manifest | None = None,
    num_examples: int | None = None,
    most_examples: int = MOST_EXAMPLES,
    declared: Sequence[DeclaredArray] = (),
    known_metrics: Mapping[str, type[Metric]] | None = None,
) -> ClientUpdate:
    """Return the update in a client's reply, which holds content, or raise RefusedUpdateError.

    Checked are names, shapes, types, that all values are finite, that variances are positive and
    point parameters not below their minima, that the number of examples is the one that is
    known, or a whole one from 1 to the most that is believed, and that the arrays besides the
    posterior are those that the parts of the method declare.

    Args:
        sent: The posterior that the client was sent: its sizes and types are expected back.
        num_examples: How many examples the client holds, where the server knows it.
        most_examples: The most that a client may claim where it does not.
        declared: What the client has to send besides its posterior.
        known_metrics: Those whose bounds are known, by the names that clients give them.
    """
    content = reply.content
    arrays = content.get(ARRAYS)
    if not isinstance(arrays, ArrayRecord):
        raise RefusedUpdateError(f"the reply has no record '{ARRAYS}' of arrays")
    metrics = content.get(METRICS)
    if not isinstance(metrics, MetricRecord):
        raise RefusedUpdateError(f"the reply has no record '{METRICS}' of metrics")
    try:
        posterior = Posterior.of_vectors(vectors_from_arrays(arrays))
    except PosteriorError as error:
        raise RefusedUpdateError(str(error)) from error
    except Exception as error:  # whatever NumPy makes of bytes that a client has chosen
        raise RefusedUpdateError(f"an array cannot be read: {error}") from error
    _check_posterior(posterior, sent, manifest)
    count = _num_examples(metrics.get(names.NUM_EXAMPLES), num_examples, most_examples)
    measured, impossible = _split_metrics(metrics, known_metrics or {}, most_examples)
    extras: Arrays = {}
    if declared or EXTRAS in content:
        try:
            extras = extra_arrays(content)
        except Exception as error:  # likewise
            raise RefusedUpdateError(f"an array besides the posterior: {error}") from error
        if problem := extras_problem(extras, declared):
            raise RefusedUpdateError(f"besides the posterior it has {problem}")
    return ClientUpdate(partition_id, posterior, count, measured, extras, impossible)


def _check_posterior(posterior: Posterior, sent: Posterior, manifest: Manifest | None) -> None:
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


def _num_examples(given: Any, known: int | None, most: int) -> int:
    claim = f"{names.NUM_EXAMPLES} is {given!r}"
    whole = isinstance(given, int) and not isinstance(given, bool)
    if not whole and not (isinstance(given, float) and given.is_integer()):
        raise RefusedUpdateError(f"{claim}; expected a whole number from 1")
    if known is not None and given != known:
        source = "as the server has assigned or the node has declared before the first round"
        raise RefusedUpdateError(f"{claim}; this client holds {known}, {source}")
    if not 1 <= given <= most:
        believed = f"1 to {most}, the most that is believed (max-examples)"
        raise RefusedUpdateError(f"{claim}; expected {believed}")
    return int(given)


def _split_metrics(
    metrics: MetricRecord, known: Mapping[str, type[Metric]], most: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the metrics that are single numbers, and apart those that nobody can have measured."""
    if len(metrics) > MOST_METRICS:
        raise RefusedUpdateError(f"there are {len(metrics)} metrics; allowed: {MOST_METRICS}")
    measured: dict[str, float] = {}
    for name, value in metrics.items():
        if not METRIC_NAME.fullmatch(name):
            allowed = "up to 64 letters, digits, '.', '_' and '-'"
            raise RefusedUpdateError(f"a metric is called {name[:80]!r}; allowed: {allowed}")
        single = isinstance(value, int | float) and abs(value) <= GREATEST_METRIC
        if single and name != names.NUM_EXAMPLES:
            measured[name] = float(value)  # type: ignore[arg-type]
    both = (measured.get(f"{model}accuracy") for model in (names.MEME, names.PERSONAL))
    better = max((accuracy for accuracy in both if accuracy is not None), default=None)
    size, ones, *right = (measured.get(name, 0.0) for name in names.COUNTS)
    fit = ones <= size <= most and right[0] <= ones and right[1] <= size - ones
    impossible = {
        name: value
        for name, value in measured.items()
        if (name in known and not known[name].possible(value))
        or (name in names.LEAST and not names.LEAST[name] <= value < math.inf)
        or (name in (names.TRAIN_STEPS, *names.COUNTS) and value % 1)
        or (name in names.COUNTS and not fit)
        or (name == names.BETTER and value != better)
    }
    return {n: value for n, value in measured.items() if n not in impossible}, impossible
