"""Pooled posteriors of clients, who come together, one after the other, or as sums alone.

Pooling is bound by memory, so a block's sums stay in the processor's cache while one client after
the other is folded in. For every parameter the clients are added one by one, in their order:
neither blocks nor the groups in which clients come change a bit of the result. Wrong weights and
values are refused: nothing is mended in silence.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice, repeat
from pathlib import Path
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
    check_arrays,
    store,
)
from bfl.errors import BflError, PosteriorError
from bfl.posteriors.posterior import Posterior, Vector, between

BLOCK = 131072
"""Parameters taken at a time: few enough for a dozen float64 arrays to stay in cache.

A stochastic rule draws block by block, so this number is part of what its draws depend on.
"""

np.empty(3 << 20)
# So that the system's allocator gives freed blocks out again: fresh pages, which are cleared first,
# would make pooling a tenth slower.

GROUP = 4
"""Clients that are held at a time when they come from an iterator: about as large as the sums."""

Client = tuple[Posterior, float, np.random.Generator | None]
"""A posterior, its weight, and its random generator for a stochastic rule."""


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

    Example:
        >>> from bfl.aggregation.pooling import pool, pooling_rules
        >>> one, other = (Posterior(np.array([m]), np.array([v])) for m, v in ((0, 1), (3, 0.5)))
        >>> pool(pooling_rules.create("conflation"), [one, other], [1, 1]).posterior.mean
        array([2.])
    """
    fractions = normalised(weights)
    drawers = repeat(None, len(fractions)) if generators is None else generators
    clients = zip(posteriors, fractions, drawers, strict=True)
    if not isinstance(posteriors, list | tuple):
        return pool_weighted(rule, clients, previous=previous, unrounded=unrounded)
    together = [client for client in clients if client[1]]
    return Sums(rule, together[0][0], previous, unrounded).pooled(together)


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
    weighted = (client for client in clients if _checked(client[1]))
    group = list(islice(weighted, GROUP))
    if not group:
        raise PosteriorError("nothing to pool: no posterior with a positive weight was added")
    sums = Sums(rule, group[0][0], previous, unrounded)
    while group:
        sums.add(group)
        del group  # before the next one comes
        group = list(islice(weighted, GROUP))
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
    added = sums.add([(posterior, weight, None)] if _checked(weight) else [])
    return Statistics(added, sums.point)


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
        statistics: The sums over the clients.
        weights: The weights with which the clients' statistics were made.
        previous: The previous global posterior.
        unrounded: See ``pool``.

    Raises:
        PosteriorError: No weight is positive, or the rule gives what is no posterior.
    """
    sums = Sums(rule, previous, previous, unrounded)
    sums.statistics, sums.point = statistics
    for weight in filter(_checked, weights):
        sums.totals += Totals(1, weight, weight, rule.mass(weight), _epsilon(previous))
    if not sums.totals.count:
        raise PosteriorError("nothing to pool: no client has a positive weight")
    return sums.pooled()


def normalised(weights: Iterable[float]) -> list[float]:
    """Return weights in proportion to those given, with sum 1.

    Raises:
        PosteriorError: No weight is positive.
        ValueError: A weight is negative or not finite.
    """
    checked = [_checked(weight) for weight in weights]
    largest = max(checked, default=0.0)
    if largest == 0:
        raise PosteriorError("nothing to pool: no client has a positive weight")
    # Divided by the largest first, so that the sum can neither overflow nor underflow.
    scaled = [weight / largest for weight in checked]
    total = math.fsum(scaled)
    return [weight / total for weight in scaled]


def _checked(weight: float) -> float:
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"a weight is {weight}; expected a finite number that is not negative")
    return float(weight)


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
        # Fresh arrays cost more than the arithmetic: the system clears their memory.
        self._client = np.empty((2, min(self.size, BLOCK)))

    def add(self, clients: Sequence[Client]) -> Array:
        """Add clients, and return the sums of the statistics.

        Raises:
            PosteriorError: A value is not valid; the sums are of no use any more.
            ValueError: A stochastic rule has no generator.
        """
        if self.statistics is None:
            self.statistics = np.zeros((self.rule.statistics, self.size))
            # It was borrowed from the first client, which is let go.
            self.reference = np.array(self.reference)
        keys = self._count(clients)
        for part in self._parts():
            self._fold(clients, keys, part, self._block(part), self.statistics[:, part])
        return self.statistics

    def pooled(self, clients: Sequence[Client] = ()) -> Pooled:
        """Return the pooled posterior of what has been summed and of some clients more.

        The latter's statistics are decoded block by block and are not kept: of clients that come
        all together there need not be any sums. With a ``damped`` rule they are added first, as one
        number for all parameters depends on all sums.

        Raises:
            PosteriorError: A client's value is not valid, or the rule gives what is no posterior:
                the message names the rule, the block and how many values are bad.
            ValueError: A stochastic rule has no generator.
        """
        if self.rule.damped and clients:
            self.add(clients)
            clients = ()
        keys = self._count(clients)
        if self.previous is not None:
            self.totals += Totals(epsilon=_epsilon(self.previous))
        step: dict[str, float] = {}
        if self.rule.damped and self.statistics is not None:
            sums = self.statistics
            blocks = ((tuple(sums[:, part]), self._block(part)) for part in self._parts())
            share, less = self.rule.step_share(blocks, self.totals)
            step = {DAMPING: share, DAMPED_FURTHER: float(less)}
        mean, variance = (np.empty(self.size, dtype) for dtype in self.types[:2])
        kept = None
        if self.rule.keeps_unrounded:
            kept = Posterior(np.empty(self.size), np.empty(self.size), np.empty(0))
        marked = dict.fromkeys((*self.rule.fractions, CLIPPED), 0)
        total = np.empty((self.rule.statistics, min(self.size, BLOCK)))
        for part in self._parts():
            block, sums = self._block(part), total[:, : part.stop - part.start]
            sums[...] = 0.0 if self.statistics is None else self.statistics[:, part]
            self._fold(clients, keys, part, block, sums)
            with _naming(self.rule, "decode the sums"):
                damped = replace(block, damping=step.get(DAMPING, 1.0))
                decoded = self.rule.decode(tuple(sums), self.totals, damped)
            marked[CLIPPED] += store(self.rule, decoded, part.start, mean[part], variance[part])
            for name, mask in decoded.marks.items():
                marked[name] += int(np.count_nonzero(mask))
            if kept:
                kept.mean[part], kept.variance[part] = decoded.mean, decoded.variance
        fractions = {name: count / max(self.size, 1) for name, count in marked.items()}
        limit = float(np.finfo(self.types[2]).max)
        # An average lies among its inputs; rounding may carry it beyond the greatest number.
        point = np.clip(self.point / self.totals.weight, -limit, limit).astype(self.types[2])
        return Pooled(Posterior(mean, variance, point), {**fractions, **step}, unrounded=kept)

    def _parts(self) -> list[slice]:
        return [slice(n, min(n + BLOCK, self.size)) for n in range(0, self.size, BLOCK)]

    def _count(self, clients: Sequence[Client]) -> list[int]:
        """Add the point parameters and the totals; return the clients' keys for random numbers."""
        keys = []
        for posterior, weight, generator in clients:
            posterior.check_form(self.size, self.point.size)
            if not (posterior.known_sound or np.isfinite(posterior.point).all()):
                posterior.check()
            self.point += weight * posterior.point.astype(np.float64)
            mass = self.rule.mass(weight)
            self.totals += Totals(1, weight, weight, mass, _epsilon(posterior))
            if self.rule.stochastic:
                if generator is None:
                    name = self.rule.name
                    raise ValueError(
                        f"{name} draws random numbers: it needs one generator per client"
                    )
                keys.append(int.from_bytes(generator.bytes(16), "little"))
        return keys

    def _block(self, part: slice) -> Block:
        def known(vector: Vector) -> Array:
            values = vector[part].astype(np.float64)
            # What one client's encoding wrote there, the next one's would take for known.
            values.flags.writeable = False
            return values

        previous, exact = self.previous, self.unrounded
        return Block(
            known(self.reference),
            known(previous.mean) if previous else None,
            known(previous.variance) if previous else None,
            known(exact.mean) if exact else None,
            known(exact.variance) if exact else None,
        )

    def _fold(
        self, clients: Sequence[Client], keys: list[int], part: slice, block: Block, sums: Array
    ) -> None:
        """Add a block of the clients' statistics to sums (S, B)."""
        mean, variance = self._client[:, : part.stop - part.start]
        for number, (posterior, weight, _) in enumerate(clients):
            # They are converted while they come from memory; the check finds them in the cache.
            mean[...], variance[...] = posterior.mean[part], posterior.variance[part]
            if not (posterior.known_sound or is_sound(posterior, part)):
                posterior.check()
            if self.rule.stochastic:
                # SFC64 because it is NumPy's fastest, and here it is what the time goes into.
                seed = np.random.SeedSequence(keys[number], spawn_key=(part.start // BLOCK,))
                block = replace(block, generator=np.random.Generator(np.random.SFC64(seed)))
            with _naming(self.rule, "encode a client"):
                encoded = self.rule.encode(mean, variance, weight, block)
            check_arrays(self.rule, "statistics", encoded, (len(sums), mean.size))
            for total, statistic in zip(sums, encoded, strict=True):
                total += statistic


def is_sound(posterior: Posterior, part: slice) -> bool:
    """Return whether a block's means are finite and its variances finite and positive.

    It may be False where they are, if their sum is too great for their type.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        finite = math.isfinite(posterior.mean[part].sum())
    return bool(finite and between(0.0, posterior.variance[part], math.inf))


@contextmanager
def _naming(rule: PoolingRule, what: str) -> Iterator[None]:
    """Raise what a rule's own code raises as a PosteriorError that names the rule and the line."""
    try:
        yield
    except BflError:
        raise
    except Exception as error:
        *_, last = traceback.extract_tb(error.__traceback__)
        where = f"{Path(last.filename).name}, line {last.lineno}"
        raise PosteriorError(
            f"strategy {rule.name} cannot {what}: {type(error).__name__}: {error} ({where})"
        ) from error


def _epsilon(posterior: Posterior) -> float:
    """Return the machine epsilon of the coarser of the types of mean and variance."""
    return max(float(np.finfo(v.dtype).eps) for v in (posterior.mean, posterior.variance))
