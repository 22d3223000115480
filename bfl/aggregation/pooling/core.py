"""Sums of a rule's statistics over clients: added to, and decoded into the pooled posterior.

Pooling is bound by memory, so a block's sums stay in the processor's cache while one client after
the other is folded in. For every parameter the clients are added one by one, in their order:
neither blocks nor the groups in which clients come change a bit of the result. Wrong weights and
values are refused: nothing is mended in silence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from bfl.aggregation.pooling.base import Array, Block, Decoded, PoolingRule, Totals
from bfl.errors import PosteriorError
from bfl.posteriors.posterior import Posterior, Vector, between


def checked_weight(weight: float) -> float:
    """Return a weight that is finite and not negative.

    Raises:
        ValueError: It is neither.
    """
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"a weight is {weight}; expected a finite number that is not negative")
    return float(weight)


def normalised(weights: Iterable[float]) -> list[float]:
    """Return weights in proportion to those given, with sum 1.

    Raises:
        PosteriorError: No weight is positive.
        ValueError: A weight is negative or not finite.
    """
    checked = [checked_weight(weight) for weight in weights]
    largest = max(checked, default=0.0)
    if largest == 0:
        raise PosteriorError("nothing to pool: no client has a positive weight")
    # Divided by the largest first, so that the sum can neither overflow nor underflow.
    scaled = [weight / largest for weight in checked]
    total = math.fsum(scaled)
    return [weight / total for weight in scaled]


def is_sound(posterior: Posterior, part: slice) -> bool:
    """Return whether a block's means are finite and its variances finite and positive."""
    mean, variance = posterior.mean[part], posterior.variance[part]
    return between(0, variance, math.inf) and between(-math.inf, mean, math.inf)


def check_real(rule: PoolingRule, what: str, values: Any, size: int) -> None:
    """Refuse an array of a rule's that is not of real numbers, or not of shape (size,).

    Raises:
        PosteriorError: Naming the rule and the array.
    """
    if np.shape(values) != (size,):
        raise PosteriorError(
            f"strategy {rule.name} gives a {what} of shape {np.shape(values)}; expected ({size},)"
        )
    # An assignment to real numbers would drop imaginary parts and take a mask for 0 and 1.
    if np.asarray(values).dtype.kind not in "fiu":
        raise PosteriorError(
            f"strategy {rule.name} gives a {what} of type {np.asarray(values).dtype}; expected "
            "real numbers"
        )


def store(rule: PoolingRule, decoded: Decoded, part: slice, mean: Vector, variance: Vector) -> int:
    """Round a block's pooled means and variances into views (B,); return how many were clipped.

    What lies outside the finite range of the views' types, or below their smallest normal variance,
    is clipped.

    Raises:
        PosteriorError: A shape, a type or a value is wrong, or a mark is not declared.
    """
    check_real(rule, "mean", decoded.mean, mean.size)
    check_real(rule, "variance", decoded.variance, mean.size)
    _check_marks(rule, decoded, mean.size)
    most, largest = (float(np.finfo(view.dtype).max) for view in (mean, variance))
    smallest = float(np.finfo(variance.dtype).tiny)
    if between(-most, decoded.mean, most) and between(smallest, decoded.variance, largest):
        mean[...], variance[...] = decoded.mean, decoded.variance
        return 0
    sound = (decoded.variance > 0) & (decoded.variance < math.inf)
    for what, good in (
        ("means that are not finite", np.isfinite(decoded.mean)),
        ("variances that are not positive and finite", sound),
    ):
        if bad := int(mean.size - np.count_nonzero(good)):
            raise PosteriorError(
                f"strategy {rule.name} gives {bad} of {mean.size} {what}, among the parameters "
                f"{part.start} to {part.stop - 1}"
            )
    mean[...] = np.clip(decoded.mean, -most, most)
    variance[...] = np.clip(decoded.variance, smallest, largest)
    outside = np.abs(decoded.mean) > most
    outside |= (decoded.variance < smallest) | (decoded.variance > largest)
    return int(np.count_nonzero(outside))


def _check_marks(rule: PoolingRule, decoded: Decoded, size: int) -> None:
    for name, mask in decoded.marks.items():
        if name not in rule.fractions:
            raise PosteriorError(
                f"strategy {rule.name} marks parameters as '{name}', which nobody would be told; "
                f"its fractions are {', '.join(rule.fractions) or 'none'}"
            )
        if np.shape(mask) != (size,) or np.asarray(mask).dtype != np.bool_:
            raise PosteriorError(
                f"strategy {rule.name} gives a mark '{name}' of shape {np.shape(mask)} and type "
                f"{np.asarray(mask).dtype}; expected a mask ({size},)"
            )


BLOCK = 131072
"""Parameters taken at a time: few enough for a dozen float64 arrays to stay in cache.

A stochastic rule draws block by block, so this number is part of what its draws depend on.
"""

CLIPPED = "clipped-fraction"
"""The diagnostic of every rule: the fraction of the Gaussian parameters whose pooled mean or
variance, sound in float64, was clipped to what the result's type can hold."""

DAMPING = "damping"
"""The diagnostic that says which share of the round's step a ``damped`` rule has made."""

DAMPED_FURTHER = "damped-further"
"""The diagnostic that is 1 where that was less than wanted, and 0 otherwise."""


@dataclass(frozen=True)
class Pooled:
    """A pooled posterior, and what is reported of it.

    Attributes:
        posterior: The pooled posterior, in the floating-point types of the clients' vectors.
        diagnostics: The rule's numbers by name, and the ``clipped-fraction``.
        unrounded: The pooled means and variances in float64, before they were rounded to those
            types, without point parameters; None unless the rule ``keeps_unrounded``.
        weights: The clients' weights in their order, with sum 1, where who has pooled says them.
    """

    posterior: Posterior
    diagnostics: dict[str, float]
    weights: tuple[float, ...] = ()
    unrounded: Posterior | None = None


class Member(NamedTuple):
    """A client to add: its weight is positive, ``key`` is that of its draws, for a stochastic rule.

    ``sound`` is True if its values are known to be valid.
    """

    posterior: Posterior
    weight: float
    key: int | None
    sound: bool


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
        self.unrounded = unrounded if rule.keeps_unrounded else None
        self.size, self.types = like.size, [v.dtype for v in (like.mean, like.variance, like.point)]
        self.statistics: Array | None = None
        self.point: Array = np.zeros(like.point.size)
        self.totals = Totals()
        # Fresh arrays would cost more than the arithmetic: the system clears their memory.
        self._rows = np.empty((7 + rule.statistics, min(self.size, BLOCK)))

    def member(
        self, posterior: Posterior, weight: float, generator: np.random.Generator | None
    ) -> Member:
        """Return a client of the right form; its values are not looked at here.

        Raises:
            PosteriorError: The posterior has other sizes, or vectors that are none.
            ValueError: A stochastic rule has no generator.
        """
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
        return Member(posterior, weight, key, posterior.known_sound)

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

    def pooled(self, members: Sequence[Member]) -> Pooled:
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
            raise PosteriorError("nothing to pool: no posterior with a positive weight was added")
        if self.previous is not None:
            self.totals += Totals(epsilon=epsilon_of(self.previous))
        damping, step = self._damping()
        mean, variance = (np.empty(self.size, dtype) for dtype in self.types[:2])
        kept = None
        if self.rule.keeps_unrounded:
            kept = Posterior(np.empty(self.size), np.empty(self.size), np.empty(0))
        marked = dict.fromkeys((*self.rule.fractions, CLIPPED), 0)
        for part in _blocks(self.size):
            block = self._block(part)
            total = self._rows[7:, : part.stop - part.start]
            total[...] = 0.0 if self.statistics is None else self.statistics[:, part]
            self._fold(members, part, block, total)
            decoded = self.rule.decode(tuple(total), self.totals, replace(block, damping=damping))
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
        rows = self._rows[2:5, : part.stop - part.start]
        rows[0] = self.reference[part]
        spare = self._rows[5:7, : part.stop - part.start]
        # Read-only: what one client's encoding wrote there, the next one's would take for known.
        known = rows.view()
        known.flags.writeable = False
        if self.previous is None:
            return Block(known[0], spare=spare)
        rows[1], rows[2] = self.previous.mean[part], self.previous.variance[part]
        exact = self.unrounded
        return Block(
            known[0],
            known[1],
            known[2],
            unrounded_mean=None if exact is None else _read_only(exact.mean[part]),
            unrounded_variance=None if exact is None else _read_only(exact.variance[part]),
            spare=spare,
        )

    def _fold(self, members: Sequence[Member], part: slice, block: Block, sums: Array) -> None:
        """Add a block of the clients' statistics to sums (S, B)."""
        mean, variance = self._rows[:2, : part.stop - part.start]
        for posterior, weight, key, sound in members:
            # They are converted while they come from memory; the check finds them in the cache.
            mean[...] = posterior.mean[part]
            variance[...] = posterior.variance[part]
            if not (sound or is_sound(posterior, part)):
                posterior.check()
            if key is not None:
                # SFC64 because it is NumPy's fastest, and here it is what the time goes into.
                seed = np.random.SeedSequence(key, spawn_key=(part.start // BLOCK,))
                drawer = np.random.Generator(np.random.SFC64(seed))
                block = replace(block, generator=drawer)
            encoded = self.rule.encode(mean, variance, weight, block)
            if len(encoded) != self.rule.statistics:
                raise PosteriorError(
                    f"strategy {self.rule.name} encodes a client as {len(encoded)} statistics; "
                    f"it declares {self.rule.statistics}"
                )
            for number, (total, statistic) in enumerate(zip(sums, encoded, strict=True), start=1):
                check_real(self.rule, f"statistic {number}", statistic, mean.size)
                total += statistic

    def _count(self, members: Sequence[Member]) -> None:
        """Add the clients' point parameters, and what is summed of all parameters alike."""
        for posterior, weight, _, sound in members:
            if not (sound or np.isfinite(posterior.point).all()):
                posterior.check()
            self.point += weight * posterior.point.astype(np.float64)
            mass = self.rule.mass(weight)
            self.totals += Totals(1, weight, weight, mass, epsilon_of(posterior))

    def _damping(self) -> tuple[float, dict[str, float]]:
        """Return the share of the round's step that is made, and what is reported of it."""
        if not self.rule.damped or self.statistics is None:
            return 1.0, {}
        wanted = self.rule.wanted_damping(self.totals)
        borne = [
            self.rule.greatest_damping(
                tuple(self.statistics[:, part]), self.totals, self._block(part)
            )
            for part in _blocks(self.size)
        ]
        damping = min([wanted, *borne])
        return damping, {DAMPING: damping, DAMPED_FURTHER: float(damping < wanted)}


def _blocks(size: int) -> list[slice]:
    return [slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK)]


def _read_only(values: Vector) -> Array:
    view = values.astype(np.float64, copy=False).view()
    view.flags.writeable = False
    return view


def epsilon_of(posterior: Posterior) -> float:
    """Return the machine epsilon of the coarser of the types of mean and variance."""
    return max(float(np.finfo(v.dtype).eps) for v in (posterior.mean, posterior.variance))
