"""What is known of the clients' posteriors before any is summed, and what is asked of each."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from bfl.aggregation.pooling.base import Array, Block, PoolingRule
from bfl.aggregation.pooling.blocks import Scratch, over_blocks
from bfl.errors import PosteriorError
from bfl.posteriors.posterior import Posterior, Vector, between


class Member(NamedTuple):
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


class Types(NamedTuple):
    """The floating-point types of a posterior's vectors."""

    mean: np.dtype[Any]
    variance: np.dtype[Any]
    point: np.dtype[Any]


@dataclass(frozen=True)
class Frame:
    """What is known of the clients' posteriors before any is summed.

    Attributes:
        rule: The pooling rule.
        reference: (D,) means around which sums are taken.
        previous: The previous global posterior, if the rule uses it and there is one.
        unrounded: The same as it was pooled, in float64, if the rule keeps it and it is known.
        point_size: The number P of point parameters.
        types: The types of the result.
        threads: The number of threads to work with; the bits do not depend on it.

    Raises:
        ValueError: There are no threads.
    """

    rule: PoolingRule
    reference: Vector
    previous: Posterior | None
    point_size: int
    types: Types
    threads: int
    unrounded: Posterior | None = None

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"threads is {self.threads}; expected at least 1")

    @classmethod
    def like(
        cls,
        rule: PoolingRule,
        like: Posterior,
        previous: Posterior | None,
        threads: int,
        unrounded: Posterior | None = None,
    ) -> Frame:
        """Return the frame for posteriors like one of them; it borrows their means.

        Raises:
            PosteriorError: The previous posterior is not valid, or has other sizes.
            ValueError: There are no threads.
        """
        if previous is not None:
            previous.check(like)
        if unrounded is not None and unrounded.size != like.size:
            raise PosteriorError(
                f"the previous posterior, as it was pooled, has {unrounded.size} Gaussian "
                f"parameters; expected {like.size}"
            )
        return cls(
            rule=rule,
            reference=(like if previous is None else previous).mean,
            previous=previous if rule.uses_previous else None,
            point_size=int(like.point.size),
            types=Types(like.mean.dtype, like.variance.dtype, like.point.dtype),
            threads=threads,
            unrounded=unrounded if rule.keeps_unrounded else None,
        )

    def kept(self) -> Frame:
        """Return the same frame with a reference of its own, whatever becomes of the borrowed."""
        return replace(self, reference=np.array(self.reference))

    @property
    def size(self) -> int:
        """The number D of Gaussian parameters."""
        return int(self.reference.size)

    @cached_property
    def scratch(self) -> Scratch:
        """Room for a block's arrays, of each thread."""
        return Scratch(self.rule.statistics, self.size)

    def check_sizes(self, size: int, point_size: int) -> None:
        """Raise unless a posterior has as many parameters.

        Raises:
            PosteriorError: It has not.
        """
        if (size, point_size) != (self.size, self.point_size):
            raise PosteriorError(
                f"a posterior has {size} Gaussian and {point_size} point parameters; "
                f"expected {self.size} and {self.point_size}"
            )

    def block(self, part: slice, rows: Array, spare: Array) -> Block:
        """Return what is known about a block, in rows (3, B), and room to spare (2, B)."""
        rows[0] = self.reference[part]
        # Read-only: what one client's encoding wrote there, the next one's would take for known.
        known = rows.view()
        known.flags.writeable = False
        if self.previous is None:
            return Block(known[0], spare=spare)
        rows[1], rows[2] = self.previous.mean[part], self.previous.variance[part]
        if self.unrounded is None:
            return Block(known[0], known[1], known[2], spare=spare)
        return Block(
            known[0],
            known[1],
            known[2],
            unrounded_mean=_read_only(self.unrounded.mean[part]),
            unrounded_variance=_read_only(self.unrounded.variance[part]),
            spare=spare,
        )

    def member(
        self, posterior: Posterior, weight: float, generator: np.random.Generator | None
    ) -> Member:
        """Return a client of the right form; its values are not looked at here.

        Raises:
            PosteriorError: The posterior has other sizes, or vectors that are none.
            ValueError: A stochastic rule has no generator.
        """
        self.check_sizes(posterior.size, posterior.point.size)
        vectors = (posterior.mean, posterior.variance, posterior.point)
        if posterior.variance.size != self.size or any(
            vector.ndim != 1 or vector.dtype.kind != "f" for vector in vectors
        ):
            posterior.check()
        sound = posterior.known_sound
        if not self.rule.stochastic:
            return Member(posterior, weight, None, sound)
        if generator is None:
            raise ValueError(
                f"{self.rule.name} draws random numbers: it needs one generator per client"
            )
        key = int.from_bytes(generator.bytes(16), "little")
        return Member(posterior, weight, key, sound)

    def has_sound_values(self, posterior: Posterior) -> bool:
        """Return whether all values of a posterior are finite, and its variances positive."""
        gaussian = over_blocks(self.size, self.threads, lambda part: is_sound(posterior, part))
        return all(gaussian) and bool(np.isfinite(posterior.point).all())


def _read_only(values: Vector) -> Array:
    view = values.astype(np.float64, copy=False).view()
    view.flags.writeable = False
    return view


def is_sound(posterior: Posterior, part: slice) -> bool:
    """Return whether a block's means are finite and its variances finite and positive."""
    mean, variance = posterior.mean[part], posterior.variance[part]
    return between(0, variance, math.inf) and between(-math.inf, mean, math.inf)


def epsilon_of(posterior: Posterior) -> float:
    """Return the machine epsilon of the coarser of the types of mean and variance."""
    return max(float(np.finfo(v.dtype).eps) for v in (posterior.mean, posterior.variance))
