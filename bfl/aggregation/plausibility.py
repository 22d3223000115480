"""Updates that no honest training can have sent, found by comparing a round's clients.

An update's greatest absolute mean or standard deviation, its greatest point parameter, the greatest
value of each further array over the parameters, and the norm of its change of means and of points
are each held to ``REACH`` times the greatest of three numbers: 1; that of what clients were sent
(of the change: the norm itself); and that of the client in the middle (the lower median, so that of
two clients the smaller one counts). Honest updates begin at one posterior and train on data of one
kind. Whatever the rule, the inference, the weighting and the round, their greatest values are
within a small factor of what they began at, or have all grown alike, as in the first round; and
none moves a hundred times as far as the whole network is from zero, and as its neighbours.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.errors import RunError
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import Vector

Arrays = Mapping[str, npt.NDArray[Any]]

REACH = 100.0
"""Greatest ratio of a client's greatest value to the others'. No value up to it is refused."""

GREATEST_VALUE = 1e15
"""The greatest value of anything: in float32 a network's squares and products overflow beyond."""

JUDGED_TOGETHER = 3
"""Updates that are held until as many have come: with one hostile client, the middle is honest."""

GAUSSIANS, POINTS = "means or standard deviations", "point parameters"
MEANS_CHANGE, POINTS_CHANGE = "a change of means with a norm", f"a change of {POINTS} with a norm"
CHANGES = (MEANS_CHANGE, POINTS_CHANGE)

NOT_HONEST = f"no honest training can have sent {{}} (allowed: {REACH:g} times as much)"


def judge_updates(
    updates: Iterable[Any], sent: Posterior, broadcast: Arrays, refuse: Callable[[int, str], None]
) -> Generator[Any, None, tuple[int, str] | None]:
    """Yield the plausible ones of a round's updates, in their order; see the module.

    The first few are held until they can be judged by one another; each later one is judged by all
    that have come so far. When all have come, those that were passed on are judged again, and the
    one that is farthest from the others is returned: its partition id, and what it sent.

    Args:
        updates: Each with its client's ``partition_id``, ``posterior`` and further ``extras``.
        sent: What clients were sent: its greatest values are those of any honest beginning.
        broadcast: What they were sent besides.
        refuse: Takes the partition id and the reason where an update is refused.

    Raises:
        RunError: One that was passed on is not plausible after all.
    """
    beside = max((_greatest(array) for array in broadcast.values()), default=0.0)
    greatest_sent = _greatest_sent(sent)
    measured: dict[int, dict[str, float]] = {}
    ascending: dict[str, list[float]] = {}  # of all clients, by kind
    passed: list[int] = []
    waiting: deque[Any] = deque()

    def farthest(client: int) -> tuple[float, str]:
        """Return the greatest ratio of a client's values to the others', and of which it is."""
        found = (0.0, "")
        for kind, value in measured[client].items():
            before = greatest_sent.get(kind, beside)
            middle = ascending[kind][(len(ascending[kind]) - 1) // 2]
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
            of_client = _measure(update.posterior, update.extras, sent)
            measured[update.partition_id] = of_client
            for kind, value in of_client.items():
                insort(ascending.setdefault(kind, []), value)
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
        texts = (f"the update of client {c}: {NOT_HONEST.format(w)}" for c, w in wrong.items())
        raise RunError("; ".join(texts))
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
    with np.errstate(over="ignore"):  # infinite is too far as well
        return float(np.linalg.norm(values.astype(np.float64) - others))
