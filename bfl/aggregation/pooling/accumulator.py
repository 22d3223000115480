"""One accumulator for every pooling rule: sums of statistics, in memory that no client adds to.

Pooling is bound by memory, so everything is done a block of parameters at a time: a block's sums
stay in the processor's cache while one client after the other is folded in, and ``pool`` decodes
them while they are still there. Blocks are independent of each other and go to several threads.
For every parameter the clients are added in their order, one by one: neither the number of threads
nor the way in which clients come in changes a bit of the result.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

from bfl.aggregation.pooling.base import Array, Block, PoolingRule, Totals
from bfl.aggregation.pooling.outcome import Outcome, check_statistics, diagnostics, store
from bfl.errors import PosteriorError
from bfl.posteriors.posterior import Posterior, Vector, between

BLOCK = 131072
"""Parameters taken at a time: few enough for a dozen float64 arrays to stay in cache, and enough
for NumPy's work on an array to take much longer than the call, which holds Python's lock and for
which threads wait.

A stochastic rule draws block by block, so this number is part of what its draws depend on.
"""

GROUP = 4
"""Clients that ``pool`` holds at a time when they come from an iterator.

With one at a time most of the traffic would be the sums'. Four are about as large as the sums are.
While they are added, the next one has already come: only then it is known that they are not the
last.
"""

TASKS = 8
"""Tasks per thread: some slack for a thread that the machine holds up."""

DAMPING = "damping"
"""The diagnostic that says which share of the round's step a ``damped`` rule has made."""

DAMPED_FURTHER = "damped-further"
"""The diagnostic that is 1 where that was less than wanted, and 0 otherwise."""

State = dict[str, "npt.NDArray[np.floating] | float | int"]
Client = tuple[Posterior, float, np.random.Generator | None]
T = TypeVar("T")


@dataclass(frozen=True)
class Pooled:
    """What pooling gives.

    Attributes:
        posterior: The pooled posterior, in the floating-point types of the clients' vectors.
        diagnostics: What the rule reports about it, by name, and the ``clipped-fraction``.
        weights: The clients' weights in their order, with sum 1, where who has pooled says them.
    """

    posterior: Posterior
    diagnostics: dict[str, float]
    weights: tuple[float, ...] = ()


class _Member(NamedTuple):
    """A client to add.

    Attributes:
        posterior: Its posterior, of the right form.
        weight: Its weight, positive.
        key: The key of its random draws, for a stochastic rule.
        sound: Whether its values are known to be valid.
    """

    posterior: Posterior
    weight: float
    key: int | None
    sound: bool


class _Scratch(threading.local):
    """Float64 arrays of a block's length, which each thread has for itself and uses again.

    Fresh arrays of this size would cost more than the arithmetic: the system clears their memory.
    """

    def __init__(self, statistics: int, size: int) -> None:
        self.rows = np.empty((7 + statistics, min(size, BLOCK)))

    def cut(self, part: slice) -> tuple[Array, Array, Array, Array]:
        """Return (2, B) for a client, (3, B) for what is known, (2, B) to spare, and the sums."""
        rows = self.rows[:, : part.stop - part.start]
        return rows[:2], rows[2:5], rows[5:7], rows[7:]


def _over_blocks(size: int, threads: int, work: Callable[[slice], T]) -> list[T]:
    """Return what ``work`` gives for each block of so many parameters, in their order."""
    parts = [slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK)]
    if threads == 1 or len(parts) < 2:
        return [work(part) for part in parts]
    step = max(1, len(parts) // (TASKS * threads))
    tasks = [parts[first : first + step] for first in range(0, len(parts), step)]
    with ThreadPoolExecutor(min(threads, len(tasks))) as executor:
        done = executor.map(lambda task: [work(part) for part in task], tasks)
        return [result for results in done for result in results]


def _sound(posterior: Posterior, part: slice) -> bool:
    """Return whether a block's means are finite and its variances finite and positive."""
    mean, variance = posterior.mean[part], posterior.variance[part]
    return between(0, variance, math.inf) and between(-math.inf, mean, math.inf)


def _epsilon(posterior: Posterior) -> float:
    """Return the machine epsilon of the coarser of the types of mean and variance."""
    return max(float(np.finfo(v.dtype).eps) for v in (posterior.mean, posterior.variance))


def _checked(weight: float) -> float:
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"a weight is {weight}; expected a finite number that is not negative")
    return float(weight)


class Accumulator:
    """The sums of a rule's statistics over the clients added so far.

    It holds ``rule.statistics`` float64 vectors (D,), one float64 vector (P,) and a reference mean
    (D,), however many clients are added, and keeps no client's posterior. Accumulators of one rule
    may be merged in any grouping, as in a hierarchy of servers. Sums are rounded, so another order
    or grouping changes the last digits: add in a fixed order where bits matter.

    Args:
        rule: The pooling rule.
        like: A posterior that gives the sizes, the types of the result and, without ``previous``,
            the reference mean around which sums are taken; in general the first client's. It is
            not added.
        previous: The previous global posterior, which gives the reference mean, and which some
            rules use.
        threads: The number of threads to work with; the bits do not depend on it.

    Raises:
        PosteriorError: A posterior is not valid or the two do not go together.
    """

    def __init__(
        self,
        rule: PoolingRule,
        like: Posterior,
        previous: Posterior | None = None,
        *,
        threads: int = 1,
    ) -> None:
        like.check()
        self._start(rule, like, previous, threads)
        self._hold()

    def _start(
        self, rule: PoolingRule, like: Posterior, previous: Posterior | None, threads: int
    ) -> None:
        """Begin without sums, with a reference that is not yet a copy."""
        if previous is not None:
            previous.check(like)
        self._begin(rule, (like if previous is None else previous).mean, previous, threads)
        self._types = (like.mean.dtype, like.variance.dtype, like.point.dtype)
        self._point = np.zeros(like.point.size)
        self._totals = Totals()

    def _begin(
        self, rule: PoolingRule, reference: Vector, previous: Posterior | None, threads: int
    ) -> None:
        if threads < 1:
            raise ValueError(f"threads is {threads}; expected at least 1")
        self.rule = rule
        self.threads = threads
        self._reference = reference
        self._previous = previous if rule.uses_previous else None
        self._sums: Array | None = None
        self._scratch = _Scratch(rule.statistics, self.size)

    def _hold(self) -> Array:
        """Return the sums; from the first call on there are sums and a reference of their own."""
        if self._sums is None:
            self._sums = np.zeros((self.rule.statistics, self.size))
            self._reference = np.array(self._reference)
        return self._sums

    @property
    def size(self) -> int:
        """The number D of Gaussian parameters."""
        return int(self._reference.size)

    def _check_sizes(self, size: int, point_size: int) -> None:
        if (size, point_size) != (self.size, self._point.size):
            raise PosteriorError(
                f"a posterior has {size} Gaussian and {point_size} point parameters; "
                f"expected {self.size} and {self._point.size}"
            )

    def _block(self, part: slice, rows: Array, spare: Array) -> Block:
        """Return what is known about a block, in rows (3, B), and room to spare (2, B)."""
        previous = self._previous
        rows[0] = self._reference[part]
        # Read-only: what one client's encoding wrote there, the next one's would take for known.
        known = rows.view()
        known.flags.writeable = False
        if previous is None:
            return Block(known[0], spare=spare)
        rows[1], rows[2] = previous.mean[part], previous.variance[part]
        return Block(known[0], known[1], known[2], spare=spare)

    def _member(
        self, posterior: Posterior, weight: float, generator: np.random.Generator | None
    ) -> _Member:
        """Return a client of the right form; its values are not looked at here."""
        self._check_sizes(posterior.size, posterior.point.size)
        vectors = (posterior.mean, posterior.variance, posterior.point)
        if posterior.variance.size != self.size or any(
            vector.ndim != 1 or vector.dtype.kind != "f" for vector in vectors
        ):
            posterior.check()
        sound = posterior.known_sound
        if not self.rule.stochastic:
            return _Member(posterior, weight, None, sound)
        if generator is None:
            raise ValueError(
                f"{self.rule.name} draws random numbers: it needs one generator per client"
            )
        key = int.from_bytes(generator.bytes(16), "little")
        return _Member(posterior, weight, key, sound)

    def add(
        self, posterior: Posterior, weight: float, generator: np.random.Generator | None = None
    ) -> None:
        """Add one client.

        A client of weight 0 takes no part at all, whatever the rule: it is not even looked at.

        Args:
            posterior: The client's posterior; it is read and not kept.
            weight: The client's weight; for a rule whose ``weights_are_fractions``, its fraction of
                all clients' weight.
            generator: The client's own random generator, for a stochastic rule. One key is drawn
                from it, of which every block of parameters makes a generator of its own.

        Raises:
            PosteriorError: The posterior is not valid or has another size. Nothing was added.
            ValueError: The weight is negative or not finite, or a stochastic rule has no generator.
        """
        if not _checked(weight):
            return
        member = self._member(posterior, weight, generator)
        if not (member.sound or self._has_sound_values(posterior)):
            posterior.check()
        self._take([member._replace(sound=True)])

    def _has_sound_values(self, posterior: Posterior) -> bool:
        gaussian = _over_blocks(self.size, self.threads, lambda part: _sound(posterior, part))
        return all(gaussian) and bool(np.isfinite(posterior.point).all())

    def _take(self, members: Sequence[_Member]) -> None:
        """Add clients; if a value of one is refused, the sums are of no use any more."""
        sums = self._hold()

        def work(part: slice) -> None:
            own, known, spare, _ = self._scratch.cut(part)
            self._fold(members, part, self._block(part, known, spare), own, sums[:, part])

        _over_blocks(self.size, self.threads, work)
        self._count(members)

    def _fold(
        self, members: Sequence[_Member], part: slice, block: Block, own: Array, sums: Array
    ) -> None:
        """Add a block of the clients' statistics to sums (S, B); ``own`` (2, B) holds a client."""
        own_mean, own_variance = own
        for posterior, weight, key, sound in members:
            # They are converted while they come from memory; the check finds them in the cache.
            own_mean[...] = posterior.mean[part]
            own_variance[...] = posterior.variance[part]
            if not (sound or _sound(posterior, part)):
                posterior.check()
            if key is not None:
                block = replace(block, generator=_generator(key, part))
            encoded = self.rule.encode(own_mean, own_variance, weight, block)
            check_statistics(self.rule, encoded, own_mean.size)
            for total, statistic in zip(sums, encoded, strict=True):
                total += statistic

    def _count(self, members: Sequence[_Member]) -> None:
        """Add the clients' point parameters and weights."""

        def work(part: slice) -> None:
            for posterior, weight, _, sound in members:
                values = posterior.point[part]
                if not (sound or np.isfinite(values).all()):
                    posterior.check()
                self._point[part] += weight * values.astype(np.float64)

        _over_blocks(self._point.size, self.threads, work)
        for posterior, weight, _, _ in members:
            mass, epsilon = self.rule.mass(weight), _epsilon(posterior)
            self._totals += Totals(1, weight, weight, mass, epsilon)

    def merge(self, other: Accumulator) -> None:
        """Add, in place, all that another accumulator holds; the other is left as it is.

        Its sums may be taken around another reference: they are re-centred exactly. This
        accumulator's reference, types and previous posterior stay.

        Raises:
            PosteriorError: The other is of another size.
            ValueError: The other is of another rule, or of the same rule with other settings.
        """
        if self.rule != other.rule:
            raise ValueError(f"cannot merge {other.rule!r} into {self.rule!r}")
        self._check_sizes(other.size, other._point.size)
        sums, other_sums = self._hold(), other._hold()

        def work(part: slice) -> None:
            shift = other._reference[part].astype(np.float64) - self._reference[part]
            moved = self.rule.recentre(tuple(other_sums[:, part]), other._totals, shift)
            for total, statistic in zip(sums[:, part], moved, strict=True):
                total += statistic

        _over_blocks(self.size, self.threads, work)
        self._point += other._point
        self._totals += other._totals

    def result(self) -> Pooled:
        """Return the pooled posterior of all that was added; more may be added afterwards.

        Means and variances that the result's type cannot hold are clipped, variances to its
        smallest normal and its largest finite number; the diagnostic ``clipped-fraction`` tells how
        many. Those that are wrong before they are rounded are an error.

        Raises:
            PosteriorError: Nothing with a positive weight was added, or the rule gives what is no
                posterior: the message names the rule, the first block and how many values are bad.
        """
        return self._finish(())

    def _finish(self, members: Sequence[_Member]) -> Pooled:
        """Return the pooled posterior of all that was added and of these clients.

        Their statistics are decoded block by block and are not kept: with any of them, this is the
        accumulator's last act.
        """
        if self.rule.damped:  # one number for all parameters: their sums come first
            self._take(members)
            members = ()
        self._count(members)
        if not self._totals.count:
            raise PosteriorError("nothing to pool: no posterior with a positive weight was added")
        totals = self._totals
        if self._previous is not None:
            totals += Totals(epsilon=_epsilon(self._previous))
        damping, step = self._damping(totals)
        mean_type, variance_type, point_type = self._types
        mean, variance = np.empty(self.size, mean_type), np.empty(self.size, variance_type)

        def work(part: slice) -> Outcome:
            own, known, spare, sums = self._scratch.cut(part)
            block = self._block(part, known, spare)
            sums[...] = 0.0 if self._sums is None else self._sums[:, part]
            self._fold(members, part, block, own, sums)
            decoded = self.rule.decode(tuple(sums), totals, replace(block, damping=damping))
            return store(self.rule, decoded, part, mean[part], variance[part])

        outcomes = _over_blocks(self.size, self.threads, work)
        reported = {**diagnostics(self.rule, outcomes, self.size), **step}
        limit = float(np.finfo(point_type).max)
        # An average lies among its inputs; rounding may carry it beyond the greatest number.
        point = np.clip(self._point / totals.weight, -limit, limit).astype(point_type)
        return Pooled(Posterior(mean, variance, point), reported)

    def _damping(self, totals: Totals) -> tuple[float, dict[str, float]]:
        """Return the share of the round's step that is made, and what is reported of it."""
        if not self.rule.damped:
            return 1.0, {}
        sums = self._hold()

        def work(part: slice) -> float:
            _, known, spare, _ = self._scratch.cut(part)
            block = self._block(part, known, spare)
            return self.rule.greatest_damping(tuple(sums[:, part]), totals, block)

        wanted = self.rule.wanted_damping(totals)
        damping = min([wanted, *_over_blocks(self.size, self.threads, work)])
        return damping, {DAMPING: damping, DAMPED_FURTHER: float(damping < wanted)}

    def state(self) -> State:
        """Return everything but the rule and the previous posterior, as arrays and numbers."""
        mean_type, variance_type, point_type = self._types
        return {
            "sums": self._hold().copy(),
            "point": self._point.copy(),
            "reference": self._reference.copy(),
            "count": self._totals.count,
            "weight": self._totals.weight,
            "weight-max": self._totals.weight_max,
            "mass": self._totals.mass,
            "epsilon": self._totals.epsilon,
            "mean-itemsize": mean_type.itemsize,
            "variance-itemsize": variance_type.itemsize,
            "point-itemsize": point_type.itemsize,
        }

    @classmethod
    def from_state(
        cls,
        rule: PoolingRule,
        state: Mapping[str, npt.NDArray[np.floating] | float | int],
        previous: Posterior | None = None,
        *,
        threads: int = 1,
    ) -> Accumulator:
        """Return the accumulator whose ``state`` this is.

        Args:
            rule: The rule it had.
            state: What ``state`` returned.
            previous: The previous global posterior it had.
            threads: The number of threads to work with.

        Raises:
            PosteriorError: The previous posterior is of another size.
            ValueError: The state is of a rule with other statistics.
        """
        arrays = {name: np.asarray(state[name]) for name in ("sums", "point", "reference")}
        expected = (rule.statistics, arrays["reference"].size)
        if arrays["sums"].shape != expected:
            raise ValueError(
                f"the state's sums have shape {arrays['sums'].shape}; "
                f"{rule.name} expected {expected}"
            )
        self = cls.__new__(cls)
        self._begin(rule, np.array(arrays["reference"]), previous, threads)
        self._sums = np.array(arrays["sums"], np.float64)
        self._point = np.array(arrays["point"], np.float64)
        if previous is not None:
            self._check_sizes(previous.size, previous.point.size)
        mean, variance, point = (
            np.dtype(f"f{int(cast(int, state[f'{name}-itemsize']))}")
            for name in ("mean", "variance", "point")
        )
        self._types = (mean, variance, point)
        self._totals = Totals(
            count=int(cast(int, state["count"])),
            weight=float(cast(float, state["weight"])),
            weight_max=float(cast(float, state["weight-max"])),
            mass=float(cast(float, state["mass"])),
            epsilon=float(cast(float, state["epsilon"])),
        )
        return self


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


def _generator(key: int, part: slice) -> np.random.Generator:
    """Return the generator of a client's draws for a block, the same on whichever thread."""
    # SFC64 because it is NumPy's fastest, and here it is what the time goes into.
    seed = np.random.SeedSequence(key, spawn_key=(part.start // BLOCK,))
    return np.random.Generator(np.random.SFC64(seed))


def pool(
    rule: PoolingRule,
    posteriors: Iterable[Posterior],
    weights: Sequence[float] | npt.NDArray[np.floating],
    *,
    previous: Posterior | None = None,
    generators: Iterable[np.random.Generator] | None = None,
    threads: int = 1,
) -> Pooled:
    """Return the pooled posterior of K clients.

    It is, bit for bit, that of an ``Accumulator`` to which the clients are added one by one.

    Args:
        rule: The pooling rule.
        posteriors: K posteriors; each is read once. Those of a list or a tuple are read all
            together, a block at a time, and need no memory but the result's; those of any other
            iterable are taken and let go by fours, so memory does not grow with K.
        weights: K weights in any scale; they are normalised to sum to 1 first.
        previous: The previous global posterior, which some rules use.
        generators: K random generators, one per client, for a stochastic rule.
        threads: The number of threads to work with; the bits do not depend on it. One unless the
            caller knows how many CPUs are free.

    Raises:
        PosteriorError: No client has a positive weight, or a posterior is not valid.
        ValueError: A weight is negative or not finite, a stochastic rule has no generators, or
            there are not as many posteriors or generators as weights.
    """
    fractions = normalised(weights)
    return pool_weighted(
        rule,
        _clients(fractions, posteriors, generators),
        previous=previous,
        threads=threads,
        at_once=len(fractions) if isinstance(posteriors, list | tuple) else GROUP,
    )


def pool_weighted(
    rule: PoolingRule,
    clients: Iterable[Client],
    *,
    previous: Posterior | None = None,
    threads: int = 1,
    at_once: int = GROUP,
) -> Pooled:
    """Return the pooled posterior of clients whose number is not known and who may come slowly.

    It is, bit for bit, that of an ``Accumulator`` to which they are added one by one.

    Args:
        rule: The pooling rule.
        clients: Posteriors with their weights, taken as they are, and their random generators, for
            a stochastic rule; each is read once and let go, and one of weight 0 is not looked at.
        previous: The previous global posterior, which some rules use.
        threads: The number of threads to work with; the bits do not depend on it.
        at_once: How many clients are held and added together.

    Raises:
        PosteriorError: There is no client, or a posterior is not valid.
        ValueError: A weight is negative or not finite, or a stochastic rule has no generators.
    """
    coming = (client for client in clients if _checked(client[1]))
    following = next(coming, None)
    if following is None:
        raise PosteriorError("nothing to pool: no posterior with a positive weight was added")
    accumulator = Accumulator.__new__(Accumulator)
    accumulator._start(rule, following[0], previous, threads)
    while True:
        together = chain([following], islice(coming, at_once - 1))
        group = [accumulator._member(*client) for client in together]
        following = next(coming, None)
        if following is None:
            return accumulator._finish(group)
        accumulator._take(group)
        del group  # before the next one comes


def _clients(
    fractions: Sequence[float],
    posteriors: Iterable[Posterior],
    generators: Iterable[np.random.Generator] | None,
) -> Iterator[Client]:
    """Yield the clients that have a weight; at the end, there must be as many of everything."""
    sources = iter(posteriors)
    drawers = None if generators is None else iter(generators)
    for index, weight in enumerate(fractions):
        posterior = next(sources, None)
        generator = None if drawers is None else next(drawers, None)
        if posterior is None or (drawers is not None and generator is None):
            what = "posteriors" if posterior is None else "generators"
            raise ValueError(f"got {index} {what} for {len(fractions)} weights")
        if weight > 0:
            yield posterior, weight, generator
    if next(sources, None) is not None:
        raise ValueError(f"got more posteriors than the {len(fractions)} weights")
