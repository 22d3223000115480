"""Updates that no honest training can have sent, refused by the name of their sender.

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

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from statistics import median_low

import numpy as np

from bfl.errors import RunError
from bfl.federation.parts import Arrays
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import Vector
from strategies.updates import ClientUpdate

REACH = 100.0
"""Greatest ratio of a client's greatest value to the others'. No value up to it is refused."""

GREATEST_VALUE = 1e15
"""The greatest value of anything: in float32 a network's squares and products overflow beyond."""

SUSPICIOUS = 10.0
"""Ratio to the middle client's greatest value from which a sender of a useless pool is named.

Of a change it is ten times as much: clients make unequal numbers of steps."""

JUDGED_TOGETHER = 3
"""Updates that are held until as many have come: with one hostile client, the middle is honest."""

GAUSSIANS = "means or standard deviations"
POINTS = "point parameters"
MEANS_CHANGE, POINTS_CHANGE = "a change of means with a norm", f"a change of {POINTS} with a norm"
BLOCK = 1 << 20

Greatest = Mapping[str, float]
"""The greatest absolute values of what a client sends, by the names of its kinds."""


class ImplausibleUpdatesError(RunError):
    """Updates that were pooled turned out to be implausible: the round is made again without.

    Attributes:
        reasons: What is wrong with each, by its client's partition id.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__(
            "; ".join(f"the update of client {client}: {why}" for client, why in reasons.items())
        )
        self.reasons = reasons


def measure(posterior: Posterior, extras: Arrays, since: Posterior) -> dict[str, float]:
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


def _greatest(values: Vector) -> float:
    # Neither of the two takes the memory of another vector.
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))


def _distance(values: Vector, others: Vector) -> float:
    """Return the norm of a difference, in blocks: no other vector is in memory."""
    blocks = range(0, values.size, BLOCK)
    parts = (values[n : n + BLOCK].astype(float) - others[n : n + BLOCK] for n in blocks)
    with np.errstate(over="ignore"):  # infinite is too far as well
        return float(np.sqrt(sum(float(part @ part) for part in parts)))


def implausible_pool(pooled: Posterior, sent: Posterior) -> str | None:
    """Return what no honest updates can have been pooled to; None if nothing is.

    For a pool of updates that nobody sees. Its change says nothing: noise for privacy makes it as
    long as the network is large, and there is no other client's to hold it against.
    """
    before = _before(sent)
    for kind, value in measure(pooled, {}, sent).items():
        if kind in (MEANS_CHANGE, POINTS_CHANGE):
            continue
        if value > min(GREATEST_VALUE, REACH * max(1.0, before[kind])):
            return (
                f"the pool has {kind} of up to {value:.3g}, and clients were sent up to "
                f"{before[kind]:.3g} (allowed: {REACH:g} times as much)"
            )
    return None


def _before(sent: Posterior) -> dict[str, float]:
    """Return what is measured of what clients were sent: of a change, how far it is from zero."""
    nothing = np.zeros_like(sent.mean), sent.variance, np.zeros_like(sent.point)
    return measure(sent, {}, Posterior(*nothing))


class Plausibility:
    """Judges the updates of one round.

    Args:
        sent: What clients were sent: its greatest values are those of any honest beginning.
        broadcast: What they were sent besides.
        refuse: Called with the partition id and the reason where an update is refused.
    """

    def __init__(
        self, sent: Posterior, broadcast: Arrays, refuse: Callable[[int, str], None]
    ) -> None:
        self._start, self._sent = sent, _before(sent)
        self._beside = max((_greatest(array) for array in broadcast.values()), default=0.0)
        self._refuse = refuse
        self._seen: dict[int, Greatest] = {}
        self._passed: list[int] = []

    def judged(self, updates: Iterable[ClientUpdate]) -> Iterator[ClientUpdate]:
        """Yield the plausible ones of updates, in their order.

        The first few are held until they can be judged by one another; each later one is judged by
        all that have come so far. When all have come, those that were passed on are judged again.

        Raises:
            ImplausibleUpdatesError: One that was passed on is not plausible after all.
        """
        waiting: deque[ClientUpdate] = deque()
        for update in chain(updates, [None]):
            if update is not None:
                greatest = measure(update.posterior, update.extras, self._start)
                self._seen[update.partition_id] = greatest
                waiting.append(update)
            all_have_come = update is None
            del update  # nobody holds it here while the next is waited for
            while waiting and (all_have_come or len(self._seen) >= JUDGED_TOGETHER):
                partition_id = waiting[0].partition_id
                if problem := self._problem(partition_id):
                    waiting.popleft()
                    self._refuse(partition_id, problem)
                else:
                    self._passed.append(partition_id)
                    yield waiting.popleft()
        wrong: dict[int, str] = {}
        for partition_id in self._passed:
            if problem := self._problem(partition_id):
                wrong[partition_id] = problem
        if wrong:
            raise ImplausibleUpdatesError(wrong)

    def _problem(self, client: int) -> str | None:
        for kind, value in self._seen[client].items():
            sent, middle = self._sent.get(kind, self._beside), self._middle(kind)
            allowed = REACH * max(1.0, sent, middle)
            if kind not in (MEANS_CHANGE, POINTS_CHANGE):
                allowed = min(GREATEST_VALUE, allowed)
            if value > allowed:
                return (
                    f"no honest training can have sent {kind} of up to {value:.3g}: what clients "
                    f"were sent has up to {sent:.3g}, and the middle one of the clients sends up "
                    f"to {middle:.3g} (allowed: {REACH:g} times as much)"
                )
        return None

    def _middle(self, kind: str) -> float:
        return median_low(greatest[kind] for greatest in self._seen.values())

    def suspicion(self) -> dict[int, str]:
        """Return whose values were far from those of the others, and how far; empty if nobody's."""
        ratios = [
            (
                value / max(self._middle(kind), 1e-30) / (10 if "change" in kind else 1),
                client,
                kind,
            )
            for client in self._passed
            for kind, value in self._seen[client].items()
        ]
        # Of a run that is over, nobody has sent an update.
        ratio, client, kind = max(ratios, key=itemgetter(0), default=(0.0, 0, ""))
        if ratio < SUSPICIOUS:
            return {}
        value, middle = self._seen[client][kind], self._middle(kind)
        return {client: f"{kind} of up to {value:.3g}, and the middle client up to {middle:.3g}"}
