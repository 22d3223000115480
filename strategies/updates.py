"""Updates of clients: read and checked by themselves, and then compared with one another.

**Plausibility.** An update's greatest absolute mean or standard deviation, its greatest point
parameter, the greatest value of each further array over the parameters, and the norm of its change
of means and of points are each held to ``REACH`` times the greatest of three numbers: 1; that of
what clients were sent (of the change: the norm itself); and that of the client in the middle (the
lower median, so that of two clients the smaller one counts). Honest updates begin at one posterior
and train on data of one kind. Whatever the rule, the inference, the weighting and the round, their
greatest values are within a small factor of what they began at, or have all grown alike, as in the
first round; and none moves a hundred times as far as the whole network is from zero, and as its
neighbours.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import median_low
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord

from bfl.errors import BflError, PosteriorError, RunError
from bfl.federation import client_metrics as names
from bfl.federation.parts import Arrays, DeclaredArray, extras_problem
from bfl.federation.wire import ARRAYS, EXTRAS, METRICS, extra_arrays, vectors_from_arrays
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.posterior import VECTORS, Vector

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
    measured, impossible = _split_metrics(metrics, known_metrics or {})
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
    whole = isinstance(given, int) and not isinstance(given, bool)
    if not whole and not (isinstance(given, float) and given.is_integer()):
        raise RefusedUpdateError(
            f"{names.NUM_EXAMPLES} is {given!r}; expected a whole number from 1"
        )
    if known is not None and given != known:
        raise RefusedUpdateError(
            f"{names.NUM_EXAMPLES} is {given!r}; this client holds {known}, as the server has "
            "assigned or the node has declared before the first round"
        )
    if not 1 <= given <= most:
        raise RefusedUpdateError(
            f"{names.NUM_EXAMPLES} is {given!r}; expected 1 to {most}, the most that is believed "
            "(max-examples)"
        )
    return int(given)


def _split_metrics(
    metrics: MetricRecord, known: Mapping[str, type[Metric]]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the metrics that are single numbers, and apart those that nobody can have measured."""
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
        if single and name != names.NUM_EXAMPLES:
            measured[name] = float(value)  # type: ignore[arg-type]
    both = (measured.get(f"{model}accuracy") for model in (names.MEME, names.PERSONAL))
    better = max((accuracy for accuracy in both if accuracy is not None), default=None)
    impossible = {
        name: value
        for name, value in measured.items()
        if (name in known and not known[name].possible(value))
        or (name in names.LEAST and not names.LEAST[name] <= value < math.inf)
        or (name in (names.TRAIN_STEPS, names.TEST_EXAMPLES) and value % 1)
        or (name == names.BETTER and value != better)
    }
    return {n: value for n, value in measured.items() if n not in impossible}, impossible


REACH = 100.0
"""Greatest ratio of a client's greatest value to the others'. No value up to it is refused."""

GREATEST_VALUE = 1e15
"""The greatest value of anything: in float32 a network's squares and products overflow beyond."""

JUDGED_TOGETHER = 3
"""Updates that are held until as many have come: with one hostile client, the middle is honest."""

GAUSSIANS, POINTS = "means or standard deviations", "point parameters"
MEANS_CHANGE, POINTS_CHANGE = "a change of means with a norm", f"a change of {POINTS} with a norm"
CHANGES = (MEANS_CHANGE, POINTS_CHANGE)
BLOCK = 1 << 20

NOT_HONEST = f"no honest training can have sent {{}} (allowed: {REACH:g} times as much)"


def judge_updates(
    updates: Iterable[ClientUpdate],
    sent: Posterior,
    broadcast: Arrays,
    refuse: Callable[[int, str], None],
) -> Generator[ClientUpdate, None, tuple[int, str] | None]:
    """Yield the plausible ones of a round's updates, in their order; see the module.

    The first few are held until they can be judged by one another; each later one is judged by all
    that have come so far. When all have come, those that were passed on are judged again, and the
    one that is farthest from the others is returned: its partition id, and what it sent.

    Args:
        sent: What clients were sent: its greatest values are those of any honest beginning.
        broadcast: What they were sent besides.
        refuse: Takes the partition id and the reason where an update is refused.

    Raises:
        RunError: One that was passed on is not plausible after all.
    """
    beside = max((_greatest(array) for array in broadcast.values()), default=0.0)
    greatest_sent = _greatest_sent(sent)
    measured: dict[int, dict[str, float]] = {}
    passed: list[int] = []
    waiting: deque[ClientUpdate] = deque()

    def farthest(client: int) -> tuple[float, str]:
        """Return the greatest ratio of a client's values to the others', and of which it is."""
        found = (0.0, "")
        for kind, value in measured[client].items():
            before = greatest_sent.get(kind, beside)
            middle = median_low(greatest[kind] for greatest in measured.values())
            too_great = kind not in CHANGES and value > GREATEST_VALUE
            ratio = math.inf if too_great else value / max(1.0, before, middle)
            if ratio > found[0]:
                text = (
                    f"{kind} of up to {value:.3g}: what clients were sent has up to {before:.3g}, "
                    f"and the middle one of the clients sends up to {middle:.3g}"
                )
                found = (ratio, text)
        return found

    for update in chain(updates, [None]):
        if update is not None:
            measured[update.partition_id] = _measure(update.posterior, update.extras, sent)
            waiting.append(update)
        all_have_come = update is None
        del update  # nobody holds it here while the next is waited for
        while waiting and (all_have_come or len(measured) >= JUDGED_TOGETHER):
            client = waiting[0].partition_id
            ratio, what = farthest(client)
            if ratio > REACH:
                waiting.popleft()
                refuse(client, NOT_HONEST.format(what))
            else:
                passed.append(client)
                yield waiting.popleft()
    judged = {client: farthest(client) for client in passed}
    if wrong := {client: what for client, (ratio, what) in judged.items() if ratio > REACH}:
        raise RunError(
            "; ".join(
                f"the update of client {client}: {NOT_HONEST.format(what)}"
                for client, what in wrong.items()
            )
        )
    if not judged:
        return None
    client = max(judged, key=lambda each: judged[each][0])
    return client, judged[client][1]


def implausible_pool(pooled: Posterior, sent: Posterior) -> str | None:
    """Return what no honest updates can have been pooled to; None if nothing is.

    For a pool of updates that nobody sees. Its change says nothing: noise for privacy makes it as
    long as the network is large, and there is no other client's to hold it against.
    """
    before = _greatest_sent(sent)
    for kind, value in _measure(pooled, {}, sent).items():
        if kind not in CHANGES and value > min(GREATEST_VALUE, REACH * max(1.0, before[kind])):
            return (
                f"the pool has {kind} of up to {value:.3g}, and clients were sent up to "
                f"{before[kind]:.3g} (allowed: {REACH:g} times as much)"
            )
    return None


def _measure(posterior: Posterior, extras: Arrays, since: Posterior) -> dict[str, float]:
    """Return the greatest values of a posterior and of arrays over the same parameters, by kind.

    And the norm of the change of its means and points since another posterior. Of arrays of other
    shapes, such as counts, the part that declares them says the bounds.
    """
    shapes = (posterior.mean.shape, posterior.point.shape)
    found = {name: _greatest(array) for name, array in extras.items() if array.shape in shapes}
    if posterior.size:
        deviation = float(np.sqrt(np.float64(posterior.variance.max())))
        found[GAUSSIANS] = max(_greatest(posterior.mean), deviation)
        found[MEANS_CHANGE] = _distance(posterior.mean, since.mean)
    if posterior.point.size:
        found[POINTS] = _greatest(posterior.point)
        found[POINTS_CHANGE] = _distance(posterior.point, since.point)
    return found


def _greatest_sent(sent: Posterior) -> dict[str, float]:
    """Measure what clients were sent: of a change, how far it is from zero."""
    zero = Posterior(np.zeros_like(sent.mean), sent.variance, np.zeros_like(sent.point))
    return _measure(sent, {}, zero)


def _greatest(values: Vector) -> float:
    # Neither of the two takes the memory of another vector.
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))


def _distance(values: Vector, others: Vector) -> float:
    blocks = range(0, values.size, BLOCK)
    parts = (values[n : n + BLOCK].astype(float) - others[n : n + BLOCK] for n in blocks)
    with np.errstate(over="ignore"):  # infinite is too far as well
        return float(np.sqrt(sum(float(part @ part) for part in parts)))
