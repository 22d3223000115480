"""The closing: a client half that adds up over its data, and a server half that finishes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bfl.registry import Component, Registry

Array = npt.NDArray[np.float64]
Known = Mapping[str, npt.NDArray[Any]]
"""The arrays that closings have found so far, by name; at the end those of ``closing.npz``."""

Shape = tuple[int, ...]

Sums = Mapping[str, Array]
"""Sums over examples, by name."""

HEAD = "head"
"""The name of the last layer's weights (F + 1, C), its biases in the last row."""

ENDED = "ended."
"""The prefix of a closing's name in the array that is there once it needs no more rounds."""

FEATURE_BOUND = 1e3
"""Longest features of one example: longer ones are scaled to it, in sums and in predictions.

So one example adds at most its square to any sum.
"""


LONGEST = "longest-features"
"""The array with the longest features, where privacy's noise takes shorter ones."""

SUMMED = "summed-clients"
"""The array with the partition ids of the clients that a round's sums are of."""

DEVIATION = "noise-deviation"
"""The array with the standard deviation of the noise on a round's sums, in units of ``lengths``."""


@dataclass(frozen=True)
class Examples:
    """Labelled examples as the last layer sees them.

    Attributes:
        features: (N, F + 1) what it takes, with a 1 for the biases.
        labels: (N,) classes.
        classes: The number C of classes.
        noised: Whether their sums get privacy's noise.
        stages: (N, Fᵢ) what the stages of the network before take, where a closing sees them.
        shifted: The same examples, their images shifted; None where no closing asks for them.
    """

    features: Array
    labels: npt.NDArray[np.integer[Any]]
    classes: int
    noised: bool = False
    stages: Sequence[Array] = ()
    shifted: Examples | None = None


def with_one(features: npt.ArrayLike, longest: float = FEATURE_BOUND) -> Array:
    """Return features (N, F) as (N, F + 1), no longer than a bound, with a 1 behind.

    Those of an image that are no numbers become 0 below the usual bound: privacy needs a bound of
    every image.
    """
    given = np.asarray(features, np.float64)
    if longest < FEATURE_BOUND:
        given = np.where(np.isfinite(given).all(axis=1, keepdims=True), given, 0.0)
    lengths = np.linalg.norm(given, axis=1, keepdims=True)
    bounded = given * np.minimum(1.0, longest / np.maximum(lengths, min(longest, 1.0)))
    return np.concatenate([bounded, np.ones((len(given), 1))], axis=1)


def held_back_count(examples: int, share: float) -> int:
    """Return how many of a client's examples it holds back from training, by the share of them."""
    return min(int(share * examples), examples - 1)


class Closing(Component, ABC):
    """One thing that sums over all clients' data tell of the final network.

    Attributes:
        told: Names of the arrays that clients need besides the network.
        moves_head: Whether predictions come from the last layer that it finds, and no longer from
            draws of the whole network.
        on_held_back: Whether it measures on examples that clients have held back, if they have.
        needs_held_back: Whether it takes such examples.
    """

    told: ClassVar[tuple[str, ...]] = ()
    moves_head: ClassVar[bool] = False
    on_held_back: ClassVar[bool] = False
    needs_held_back: ClassVar[bool] = False

    @property
    def rounds(self) -> int:
        """The number of rounds of sums that it takes, or fewer where it says ``ENDED`` before."""
        return 1

    @property
    def waits(self) -> bool:
        """True if it begins when those that do not wait, and those before it, have finished."""
        return False

    @property
    def sees_stages(self) -> bool:
        """True if it takes features of the stages before the last layer as well."""
        return False

    def shift(self, known: Known, side: int) -> int:
        """Return the most pixels by which the images of ``Examples.shifted`` are; 0: it needs none.

        Args:
            known: The arrays that the client is ``told``.
            side: The shorter side of an image.
        """
        return 0

    def problem(self, features: int, classes: int) -> str | None:
        """Return why it cannot close a network with F features and C classes; None if it can."""
        return None

    def held_back_problem(self, examples: int) -> str | None:
        """Return why so many examples, held back by all clients together, do not do; else None."""
        return None

    @abstractmethod
    def shapes(self, features: int, classes: int) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of its sums, for F features and C classes."""

    def shapes_of_stages(self, widths: Sequence[int], classes: int) -> Mapping[str, Shape]:
        """Return the shapes of its further sums, for stages of some widths.

        Where a name has a dot, ``lengths`` are by the name before it.
        """
        return {}

    @abstractmethod
    def measure(self, known: Known, examples: Examples) -> Sums:
        """Return a client's sums: the client half.

        Args:
            known: The arrays that it is ``told``.
            examples: The client's examples.
        """

    def lengths(self, longest: float, classes: int) -> Mapping[str, float] | None:
        """Return the greatest L2 norms of what one example adds to each sum, by its name.

        Privacy's noise is drawn in these units. 0: the same of every example, which gets no noise;
        None: unknown, and the closing takes no noise.

        Args:
            longest: The longest features of an example, without the 1.
            classes: The number C of classes.
        """
        return None

    def implausible(
        self,
        sums: Sums,
        examples: int,
        *,
        noised: bool = False,
        beside: Mapping[str, Sums] | None = None,
    ) -> str | None:
        """Return why no such number of examples has such sums; None if one may.

        Honest sums pass, also rounded to float32 or to a grid as fine as that of masked sums.

        Args:
            sums: The sums of a client, or of several.
            examples: How many examples it has trained on; it has held back at most as many.
            noised: Whether the sums have noise, and may be any but those that get none.
            beside: The sums of all closings of the round, by the closing's name.
        """
        return None

    @abstractmethod
    def fold(self, known: Known, sums: Sums) -> Known:
        """Return what is known after a round of sums: the server half.

        Args:
            known: What was known before.
            sums: The sums of all clients, added up.
        """


closings: Registry[Closing] = Registry("closing", "bfl.closing")


@closings.register("none")
class NoClosing(Closing):
    """No closing round: the run ends with the pooled posterior."""

    @property
    def rounds(self) -> int:
        """The number of rounds: none."""
        return 0

    def shapes(self, features: int, classes: int) -> Mapping[str, tuple[int, ...]]:
        """Return nothing."""
        return {}

    def measure(self, known: Known, examples: Examples) -> Sums:
        """Return nothing."""
        return {}

    def fold(self, known: Known, sums: Sums) -> Known:
        """Return what was known."""
        return known
