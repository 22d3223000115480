"""Sums of a rule's statistics over clients: added to, and decoded into the pooled posterior.

For every parameter the clients are added in their order, one by one: neither the number of threads
nor the way in which clients come in changes a bit of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bfl.aggregation.pooling.base import Array, Block, Totals
from bfl.aggregation.pooling.blocks import generator_of_block, over_blocks
from bfl.aggregation.pooling.frame import Frame, Member, epsilon_of, is_sound
from bfl.aggregation.pooling.outcome import Outcome, check_statistics, diagnostics, store
from bfl.errors import PosteriorError
from bfl.posteriors.posterior import Posterior

DAMPING = "damping"
"""The diagnostic that says which share of the round's step a ``damped`` rule has made."""

DAMPED_FURTHER = "damped-further"
"""The diagnostic that is 1 where that was less than wanted, and 0 otherwise."""


@dataclass(frozen=True)
class Pooled:
    """What pooling gives.

    Attributes:
        posterior: The pooled posterior, in the floating-point types of the clients' vectors.
        diagnostics: What the rule reports about it, by name, and the ``clipped-fraction``.
        unrounded: The pooled means and variances in float64, before they were rounded to those
            types, without point parameters; None unless the rule ``keeps_unrounded``.
        weights: The clients' weights in their order, with sum 1, where who has pooled says them.
    """

    posterior: Posterior
    diagnostics: dict[str, float]
    weights: tuple[float, ...] = ()
    unrounded: Posterior | None = None


@dataclass
class Sums:
    """What has been added; the arrays change in place.

    Attributes:
        statistics: (S, D) sums of the rule's statistics.
        point: (P,) sums of the point parameters times the weights.
        totals: What was added, all parameters alike.
    """

    statistics: Array
    point: Array
    totals: Totals

    @classmethod
    def zero(cls, frame: Frame) -> Sums:
        """Return the sums over no client."""
        statistics = np.zeros((frame.rule.statistics, frame.size))
        return cls(statistics, np.zeros(frame.point_size), Totals())

    def add(self, frame: Frame, members: Sequence[Member]) -> None:
        """Add clients; if a value of one is refused, the sums are of no use any more.

        Raises:
            PosteriorError: A value is not valid.
        """
        scratch = frame.scratch

        def work(part: slice) -> None:
            own, known, spare, _ = scratch.cut(part)
            sums = self.statistics[:, part]
            _fold(frame, members, part, frame.block(part, known, spare), own, sums)

        over_blocks(frame.size, frame.threads, work)
        self.totals = _count(frame, members, self.point, self.totals)


def _fold(
    frame: Frame, members: Sequence[Member], part: slice, block: Block, own: Array, sums: Array
) -> None:
    """Add a block of the clients' statistics to sums (S, B); ``own`` (2, B) holds a client."""
    own_mean, own_variance = own
    for posterior, weight, key, sound in members:
        # They are converted while they come from memory; the check finds them in the cache.
        own_mean[...] = posterior.mean[part]
        own_variance[...] = posterior.variance[part]
        if not (sound or is_sound(posterior, part)):
            posterior.check()
        if key is not None:
            block = replace(block, generator=generator_of_block(key, part))
        encoded = frame.rule.encode(own_mean, own_variance, weight, block)
        check_statistics(frame.rule, encoded, own_mean.size)
        for total, statistic in zip(sums, encoded, strict=True):
            total += statistic


def _count(frame: Frame, members: Sequence[Member], point: Array, totals: Totals) -> Totals:
    """Add the clients' point parameters to sums (P,), and return the totals with them."""

    def work(part: slice) -> None:
        for posterior, weight, _, sound in members:
            values = posterior.point[part]
            if not (sound or np.isfinite(values).all()):
                posterior.check()
            point[part] += weight * values.astype(np.float64)

    over_blocks(frame.point_size, frame.threads, work)
    for posterior, weight, _, _ in members:
        totals += Totals(1, weight, weight, frame.rule.mass(weight), epsilon_of(posterior))
    return totals


def pooled(frame: Frame, sums: Sums | None, members: Sequence[Member] = ()) -> Pooled:
    """Return the pooled posterior of what has been summed and of some clients more.

    The latter's statistics are decoded block by block and are not kept: of clients that come all
    together there need not be any sums. With a ``damped`` rule they are added to the sums.

    Args:
        frame: What the sums were made with.
        sums: What has been summed; None: nothing.
        members: The clients that come last.

    Raises:
        PosteriorError: There is nothing with a positive weight, a client's value is not valid, or
            the rule gives what is no posterior: the message names the rule, the first block and how
            many values are bad.
    """
    if frame.rule.damped and members:  # one number for all parameters: their sums come first
        sums = sums or Sums.zero(frame)
        sums.add(frame, members)
        members = ()
    before = sums.totals if sums else Totals()
    point_sums = sums.point.copy() if sums else np.zeros(frame.point_size)
    totals = _count(frame, members, point_sums, before)
    if not totals.count:
        raise PosteriorError("nothing to pool: no posterior with a positive weight was added")
    if frame.previous is not None:
        totals += Totals(epsilon=epsilon_of(frame.previous))
    damping, step = _damping(frame, sums, totals)
    mean, variance = (
        np.empty(frame.size, frame.types.mean),
        np.empty(frame.size, frame.types.variance),
    )
    scratch, unrounded = frame.scratch, _room(frame)

    def work(part: slice) -> Outcome:
        own, known, spare, total = scratch.cut(part)
        block = frame.block(part, known, spare)
        total[...] = sums.statistics[:, part] if sums else 0.0
        _fold(frame, members, part, block, own, total)
        decoded = frame.rule.decode(tuple(total), totals, replace(block, damping=damping))
        outcome = store(frame.rule, decoded, part, mean[part], variance[part])
        if unrounded:
            unrounded.mean[part], unrounded.variance[part] = decoded.mean, decoded.variance
        return outcome

    outcomes = over_blocks(frame.size, frame.threads, work)
    reported = {**diagnostics(frame.rule, outcomes, frame.size), **step}
    limit = float(np.finfo(frame.types.point).max)
    # An average lies among its inputs; rounding may carry it beyond the greatest number.
    point = np.clip(point_sums / totals.weight, -limit, limit).astype(frame.types.point)
    return Pooled(Posterior(mean, variance, point), reported, unrounded=unrounded)


def _room(frame: Frame) -> Posterior | None:
    """Return room for what is pooled before it is rounded; None if the rule does not keep it."""
    if not frame.rule.keeps_unrounded:
        return None
    return Posterior(np.empty(frame.size), np.empty(frame.size), np.empty(0))


def _damping(frame: Frame, sums: Sums | None, totals: Totals) -> tuple[float, dict[str, float]]:
    """Return the share of the round's step that is made, and what is reported of it."""
    if not frame.rule.damped or sums is None:
        return 1.0, {}
    statistics, scratch = sums.statistics, frame.scratch

    def work(part: slice) -> float:
        _, known, spare, _ = scratch.cut(part)
        block = frame.block(part, known, spare)
        return frame.rule.greatest_damping(tuple(statistics[:, part]), totals, block)

    wanted = frame.rule.wanted_damping(totals)
    damping = min([wanted, *over_blocks(frame.size, frame.threads, work)])
    return damping, {DAMPING: damping, DAMPED_FURTHER: float(damping < wanted)}
