"""Pooled posteriors of clients, who come together, one after the other, or as sums alone.

Pooling is bound by memory, so a block's sums stay in the processor's cache while one client after
the other is folded in. For every parameter the clients are added one by one, in their order:
neither blocks nor the groups in which clients come change a bit of the result. Wrong weights and
values are refused: nothing is mended in silence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice, repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bfl.aggregation.pooling.base import (
    CLIPPED,
    DAMPED_FURTHER,
    DAMPING,
    Array,
    Block,
    Pooled,
    PoolingRule,
    Totals,
    blaming,
    check_encoded,
    check_real,
    checked_weight,
    normalised,
    store,
)
from bfl.errors import PosteriorError
from bfl.posteriors.posterior import Posterior, Vector, between

BLOCK = 131072
"""Parameters taken at a time: few enough for a dozen float64 arrays to stay in cache.

A stochastic rule draws block by block, so this number is part of what its draws depend on.
"""

GROUP = 4
"""Clients that are held at a time when they come from an iterator: about as large as the sums."""

NOTHING = "nothing to pool: no posterior with a positive weight was added"

Client = tuple[Posterior, float, np.random.Generator | None]
"""A posterior, its weight, and its random generator for a stochastic rule."""

Member = tuple[Posterior, float, int | None]
"""A client of the right form: its weight is positive, and the generator has given a key."""


class Statistics(NamedTuple):
    """Sums over clients, or what one client adds to them.

    Attributes:
        gaussian: (S, D) statistics of the rule.
        point: (P,) point parameters times the weight.
    """

    gaussian: Array
    point: Array


def pool(
    rule: PoolingRule,
    posteriors: Iterable[Posterior],
    weights: Sequence[float] | npt.NDArray[np.floating],
    *,
    previous: Posterior | None = None,
    unrounded: Posterior | None = None,
    generators: Iterable[np.random.Generator] | None = None,
) -> Pooled:
    """Return the pooled posterior of K clients.

    Args:
        rule: The pooling rule.
        posteriors: K posteriors; each is read once. Those of a list or a tuple are read all
            together, a block at a time, and need no memory but the result's; those of any other
            iterable are taken and let go by fours, so memory does not grow with K.
        weights: K weights in any scale; they are normalised to sum to 1 first.
        previous: The previous global posterior, which some rules use.
        unrounded: The same as it was pooled, in float64, which rules that ``keeps_unrounded`` use.
        generators: K random generators, one per client, for a stochastic rule.

    Raises:
        PosteriorError: No client has a positive weight, or a posterior is not valid.
        ValueError: A weight is negative or not finite, a stochastic rule has no generators, or
            there are not as many posteriors or generators as weights.
    """
    fractions = normalised(weights)
    drawers = repeat(None, len(fractions)) if generators is None else generators
    clients = zip(posteriors, fractions, drawers, strict=True)
    if not isinstance(posteriors, list | tuple):
        return pool_weighted(rule, clients, previous=previous, unrounded=unrounded)
    together = [client for client in clients if client[1]]
    sums = Sums(rule, together[0][0], previous, unrounded)
    return sums.pooled([sums.member(client) for client in together])


def pool_weighted(
    rule: PoolingRule,
    clients: Iterable[Client],
    *,
    previous: Posterior | None = None,
    unrounded: Posterior | None = None,
) -> Pooled:
    """Return the pooled posterior of clients whose number is not known and who may come slowly.

    Args:
        rule: The pooling rule.
        clients: Posteriors with their weights, taken as they are, and their random generators, for
            a stochastic rule; each is read once and let go, and one of weight 0 is not looked at.
        previous: See ``pool``.
        unrounded: See ``pool``.

    Raises:
        PosteriorError: There is no client, or a posterior is not valid.
        ValueError: A weight is negative or not finite, or a stochastic rule has no generators.
    """
    coming = (client for client in clients if checked_weight(client[1]))
    group = list(islice(coming, GROUP))
    if not group:
        raise PosteriorError(NOTHING)
    sums = Sums(rule, group[0][0], previous, unrounded)
    while group:
        sums.add([sums.member(client) for client in group])
        del group  # before the next one comes
        group = list(islice(coming, GROUP))
    return sums.pooled()


def client_statistics(
    rule: PoolingRule, posterior: Posterior, weight: float, previous: Posterior
) -> Statistics:
    """Return what a client adds to a rule's sums; zeros for a weight of 0.

    For who adds them up elsewhere, and may know nothing but the sums. The rule is not stochastic,
    the weight is taken as it is, and the previous global posterior gives the reference.

    Raises:
        PosteriorError: The posterior is not valid or has another size.
        ValueError: The weight is negative or not finite, or the rule draws random numbers.
    """
    sums = Sums(rule, previous, previous)
    members = [sums.member((posterior, weight, None))] if checked_weight(weight) else []
    return Statistics(sums.add(members), sums.point)


def pooled_statistics(
    rule: PoolingRule,
    statistics: Statistics,
    weights: Sequence[float],
    previous: Posterior,
    unrounded: Posterior | None = None,
) -> Pooled:
    """Return the pooled posterior of summed statistics, in the types of the previous one.

    Args:
        rule: The pooling rule.
        statistics: The sums over the clients; they may be changed in place.
        weights: The weights with which the clients' statistics were made.
        previous: The previous global posterior.
        unrounded: See ``pool``.

    Raises:
        PosteriorError: No weight is positive, or the rule gives what is no posterior.
    """
    sums = Sums(rule, previous, previous, unrounded)
    sums.statistics, sums.point = statistics
    for weight in filter(checked_weight, weights):
        sums.totals += Totals(1, weight, weight, rule.mass(weight), epsilon_of(previous))
    return sums.pooled()


class Sums:
    """Sums of a rule's statistics over clients.

    Args:
        rule: The pooling rule.
        like: A posterior that gives the sizes, the types of the result and, without ``previous``,
            the reference mean around which sums are taken. It is not added.
        previous: The previous global posterior.
        unrounded: The same as it was pooled, in float64.

    Attributes:
        statistics: (S, D) sums of the rule's statistics; None before anybody was added.
        point: (P,) sums of the point parameters times the weights.
        totals: What was added, all parameters alike.

    Raises:
        PosteriorError: The previous posterior is not valid, or has other sizes.
    """

    def __init__(
        self,
        rule: PoolingRule,
        like: Posterior,
        previous: Posterior | None,
        unrounded: Posterior | None = None,
    ) -> None:
        if previous is not None:
            previous.check(like)
        if unrounded is not None and unrounded.size != like.size:
            raise PosteriorError(
                f"the previous posterior, as it was pooled, has {unrounded.size} Gaussian "
                f"parameters; expected {like.size}"
            )
        self.rule = rule
        self.reference = (like if previous is None else previous).mean
        self.previous = previous if rule.uses_previous else None
        self.unrounded = unrounded if self.previous and rule.keeps_unrounded else None
        self.size, self.types = like.size, [v.dtype for v in (like.mean, like.variance, like.point)]
        self.statistics: Array | None = None
        self.point: Array = np.zeros(like.point.size)
        self.totals = Totals()
        # Fresh arrays would cost more than the arithmetic: the system clears their memory.
        self._rows = np.empty((9 + rule.statistics, min(self.size, BLOCK)))

    def member(self, client: Client) -> Member:
        """Return a client of the right form; its values are not looked at here.

        Raises:
            PosteriorError: The posterior has other sizes, or vectors that are none.
            ValueError: A stochastic rule has no generator.
        """
        posterior, weight, generator = client
        sizes, expected = (posterior.size, posterior.point.size), (self.size, self.point.size)
        if sizes != expected:
            raise PosteriorError(
                f"a posterior has {sizes[0]} Gaussian and {sizes[1]} point parameters; "
                f"expected {expected[0]} and {expected[1]}"
            )
        vectors = (posterior.mean, posterior.variance, posterior.point)
        if posterior.variance.size != self.size or any(
            vector.ndim != 1 or vector.dtype.kind != "f" for vector in vectors
        ):
            posterior.check()
        key = None
        if self.rule.stochastic:
            if generator is None:
                raise ValueError(
                    f"{self.rule.name} draws random numbers: it needs one generator per client"
                )
            key = int.from_bytes(generator.bytes(16), "little")
        return posterior, weight, key

    def add(self, members: Sequence[Member]) -> Array:
        """Add clients, and return the sums of the statistics.

        Raises:
            PosteriorError: A value is not valid; the sums are of no use any more.
        """
        if self.statistics is None:
            self.statistics = np.zeros((self.rule.statistics, self.size))
            # It was borrowed from the first client, which is let go.
            self.reference = np.array(self.reference)
        for part in _blocks(self.size):
            self._fold(members, part, self._block(part), self.statistics[:, part])
        self._count(members)
        return self.statistics

    def pooled(self, members: Sequence[Member] = ()) -> Pooled:
        """Return the pooled posterior of what has been summed and of some clients more.

        The latter's statistics are decoded block by block and are not kept: of clients that come
        all together there need not be any sums. With a ``damped`` rule they are added first, as one
        number for all parameters depends on all sums.

        Raises:
            PosteriorError: There is nothing with a positive weight, a client's value is not valid,
                or the rule gives what is no posterior: the message names the rule, the block and
                how many values are bad.
        """
        if self.rule.damped and members:
            self.add(members)
            members = ()
        self._count(members)
        if not self.totals.count:
            raise PosteriorError(NOTHING)
        if self.previous is not None:
            self.totals += Totals(epsilon=epsilon_of(self.previous))
        step = self._damping()
        mean, variance = (np.empty(self.size, dtype) for dtype in self.types[:2])
        kept = None
        if self.rule.keeps_unrounded:
            kept = Posterior(np.empty(self.size), np.empty(self.size), np.empty(0))
        marked = dict.fromkeys((*self.rule.fractions, CLIPPED), 0)
        for part in _blocks(self.size):
            block = self._block(part)
            total = self._rows[9:, : part.stop - part.start]
            total[...] = 0.0 if self.statistics is None else self.statistics[:, part]
            self._fold(members, part, block, total)
            block = replace(block, damping=step.get(DAMPING, 1.0))
            with blaming(self.rule, "decode the sums"):
                decoded = self.rule.decode(tuple(total), self.totals, block)
            marked[CLIPPED] += store(self.rule, decoded, part, mean[part], variance[part])
            for name, mask in decoded.marks.items():
                marked[name] += int(np.count_nonzero(mask))
            if kept:
                kept.mean[part], kept.variance[part] = decoded.mean, decoded.variance
        fractions = {name: count / max(self.size, 1) for name, count in marked.items()}
        limit = float(np.finfo(self.types[2]).max)
        # An average lies among its inputs; rounding may carry it beyond the greatest number.
        point = np.clip(self.point / self.totals.weight, -limit, limit).astype(self.types[2])
        return Pooled(Posterior(mean, variance, point), {**fractions, **step}, unrounded=kept)

    def _block(self, part: slice) -> Block:
        """Return what is known about a block, and room to spare (2, B)."""
        room = self._rows[2:9, : part.stop - part.start]
        previous, exact = self.previous, self.unrounded

        def known(row: int, vector: Vector) -> Array:
            view: Array = room[row].view()
            view[...] = vector[part]
            # What one client's encoding wrote there, the next one's would take for known.
            view.flags.writeable = False
            return view

        return Block(
            known(0, self.reference),
            known(1, previous.mean) if previous else None,
            known(2, previous.variance) if previous else None,
            known(3, exact.mean) if exact else None,
            known(4, exact.variance) if exact else None,
            spare=room[5:],
        )

    def _fold(self, members: Sequence[Member], part: slice, block: Block, sums: Array) -> None:
        """Add a block of the clients' statistics to sums (S, B)."""
        mean, variance = self._rows[:2, : part.stop - part.start]
        for posterior, weight, key in members:
            # They are converted while they come from memory; the check finds them in the cache.
            mean[...] = posterior.mean[part]
            variance[...] = posterior.variance[part]
            if not (posterior.known_sound or is_sound(posterior, part)):
                posterior.check()
            if key is not None:
                # SFC64 because it is NumPy's fastest, and here it is what the time goes into.
                seed = np.random.SeedSequence(key, spawn_key=(part.start // BLOCK,))
                drawer = np.random.Generator(np.random.SFC64(seed))
                block = replace(block, generator=drawer)
            with blaming(self.rule, "encode a client"):
                encoded = self.rule.encode(mean, variance, weight, block)
            check_encoded(self.rule, encoded)
            for number, (total, statistic) in enumerate(zip(sums, encoded, strict=True), start=1):
                check_real(self.rule, f"statistic {number}", statistic, mean.size)
                total += statistic

    def _count(self, members: Sequence[Member]) -> None:
        """Add the clients' point parameters, and what is summed of all parameters alike."""
        for posterior, weight, _ in members:
            if not (posterior.known_sound or np.isfinite(posterior.point).all()):
                posterior.check()
            self.point += weight * posterior.point.astype(np.float64)
            mass = self.rule.mass(weight)
            self.totals += Totals(1, weight, weight, mass, epsilon_of(posterior))

    def _damping(self) -> dict[str, float]:
        """Return what is reported of a damped rule's share of the step; nothing of another's."""
        if not self.rule.damped or self.statistics is None:
            return {}
        sums, parts = self.statistics, _blocks(self.size)
        blocks = ((tuple(sums[:, part]), self._block(part)) for part in parts)
        share, less = self.rule.step_share(blocks, self.totals)
        return {DAMPING: share, DAMPED_FURTHER: float(less)}


def is_sound(posterior: Posterior, part: slice) -> bool:
    """Return whether a block's means are finite and its variances finite and positive."""
    mean, variance = posterior.mean[part], posterior.variance[part]
    return between(0, variance, math.inf) and between(-math.inf, mean, math.inf)


def _blocks(size: int) -> list[slice]:
    return [slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK)]


def epsilon_of(posterior: Posterior) -> float:
    """Return the machine epsilon of the coarser of the types of mean and variance."""
    return max(float(np.finfo(v.dtype).eps) for v in (posterior.mean, posterior.variance))
