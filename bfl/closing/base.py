"""The closing: what clients add up over their data, and what the server makes of the sums."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from bfl.registry import Component, Registry

if TYPE_CHECKING:
    from bfl.evaluation.regression import Mixtures

Array = npt.NDArray[np.float64]
Known = Mapping[str, npt.NDArray[Any]]
"""The arrays that closings have found so far, by name; at the end those of ``closing.npz``."""

Shapes = Mapping[str, tuple[int, ...]]
Sums = Mapping[str, Array]
"""Sums over examples, by name."""

HEAD = "head"
"""The name of the last layer's weights (F + 1, C), its biases in the last row."""

FROM_HEAD = "from-head"
"""The array that is true where predictions come from the last layer that was found."""

FEATURE_BOUND = 1e3
"""Longest features of one example: longer ones are scaled to it, in sums and in predictions.

So one example adds at most its square to any sum.
"""

LONGEST = "longest-features"
"""The array with the longest features, where privacy's noise takes shorter ones."""

DEVIATION = "noise-deviation"
"""The array with the standard deviation of the noise on a round's sums, in units of ``lengths``."""

LEAST_LIKELIHOOD = -30.0
"""The least log-likelihood that an example counts with, in nats."""

ROUNDED = 1e-4
"""Distance of honest sums from what they have to be: for each example, and of their size."""

WHOLE = 1e-2
"""Greatest distance of sums of whole numbers from whole ones."""

HELD_BACK_SHARE = 0.1
"""The share of its examples that each client holds back where nothing else is said."""

LEAST_HELD_BACK = 3
"""The fewest examples that each client holds back, if it has twice as many."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the network's last layer.

    Attributes:
        features: The number F of features that it takes.
        classes: The number C of classes.
        stages: How many channels the stages before it take.
    """

    features: int
    classes: int
    stages: Sequence[int] = ()


@dataclass(frozen=True)
class Examples:
    """Labelled examples as the last layer sees them.

    Attributes:
        features: (N, F + 1) what it takes, with a 1 for the biases.
        labels: (N,) classes.
        classes: The number C of classes.
        noised: Whether their sums get privacy's noise.
        stages: (N, Fᵢ) what the stages of the network before take.
        own: (N,) log-likelihoods by draws of the whole network, where it is drawn.
        targets: (N,) numbers of mean 0 and deviation 1, where these are predicted.
        drawn: Predictions of them by draws of the whole network, where it is drawn.
    """

    features: Array
    labels: npt.NDArray[np.integer[Any]]
    classes: int
    noised: bool = False
    stages: Sequence[Array] = ()
    own: Array | None = None
    targets: Array = field(default_factory=lambda: np.zeros(0))
    drawn: Mixtures | None = None

    @property
    def sizes(self) -> Sizes:
        """The sizes of the last layer."""
        widths = [stage.shape[1] for stage in self.stages]
        return Sizes(self.features.shape[1] - 1, self.classes, widths)

    def take(self, rows: slice) -> Examples:
        """Return some of the examples."""
        positions = np.arange(len(self.labels))[rows]
        return replace(
            self,
            features=self.features[rows],
            labels=self.labels[rows],
            stages=[stage[rows] for stage in self.stages],
            own=None if self.own is None else self.own[rows],
            targets=self.targets[rows],
            drawn=None if self.drawn is None else self.drawn.take(positions),
        )


def initial_arrays(head: Array, *, from_head: bool, longest: float | None = None) -> Known:
    """Return what is known before the first round of sums.

    Args:
        head: The network's own last layer (F + 1, C), biases last.
        from_head: Whether predictions are to come from it, and not from draws of the network.
        longest: The longest features under privacy's noise; None: there is none.
    """
    bound = {} if longest is None else {LONGEST: np.array(longest)}
    return {HEAD: np.asarray(head, np.float64), FROM_HEAD: np.array(from_head), **bound}


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
    """Return how many of a client's examples it holds back from training, by the share of them.

    At least three, but no more than half of them.
    """
    if share <= 0.0:
        return 0
    return min(max(math.ceil(share * examples - 1e-9), LEAST_HELD_BACK), examples // 2)


class Measurement(ABC):
    """One message of a closing: sums that clients add up, and their result on the server.

    Attributes:
        told: Names of the arrays that clients need besides the network, those of stages with them.
        on_held_back: Whether it measures on the examples that clients do not train on.
        compares_draws: Whether it needs ``Examples.own``.
    """

    told: ClassVar[tuple[str, ...]] = ()
    on_held_back: ClassVar[bool] = False
    compares_draws: ClassVar[bool] = False

    @abstractmethod
    def shapes(self, sizes: Sizes) -> Shapes:
        """Return the shapes of its sums."""

    @abstractmethod
    def measure(self, known: Known, examples: Examples) -> Sums:
        """Return a client's sums: the client half.

        Args:
            known: The arrays that it is ``told``.
            examples: The client's examples, at least one.
        """

    def lengths(self, longest: float, sizes: Sizes) -> Mapping[str, float]:
        """Return the greatest L2 norms of what one example adds to each sum, by its name.

        Privacy's noise is drawn in these units. 0: the same of every example, which gets no noise.

        Args:
            longest: The longest features of an example, without the 1.
            sizes: Those of the last layer.
        """
        return {}

    def find_problem(self, sums: Sums, examples: int, *, noised: bool = False) -> str | None:
        """Return why no such number of examples has such sums; None if one may.

        Honest sums pass, also rounded to float32 or to a grid as fine as that of masked sums.

        Args:
            sums: The sums of a client, or of several.
            examples: How many examples it has trained on; it has held back at most as many.
            noised: Whether the sums have noise, and may be any but those that get none.
        """
        return None

    @abstractmethod
    def fold(self, known: Known, sums: Sums) -> Known:
        """Return what is known after the round: the server half.

        Args:
            known: What was known before.
            sums: The sums of all clients, added up.
        """


class Histogram(Measurement):
    """A histogram over held-back examples, each of which adds 1 to one count of its only sum."""

    on_held_back: ClassVar[bool] = True

    def lengths(self, longest: float, sizes: Sizes) -> Mapping[str, float]:
        """Return that an example adds 1 to one count."""
        return dict.fromkeys(self.shapes(sizes), 1.0)

    def find_problem(self, sums: Sums, examples: int, *, noised: bool = False) -> str | None:
        """Return why the counts cannot be of at most so many examples."""
        [counts] = sums.values()
        return None if noised else count_problem(counts, examples)


class Closing(Component, ABC):
    """One thing that sums over all clients' data tell of the final network.

    Attributes:
        moves_head: Whether predictions come from the last layer that it finds, and no longer from
            draws of the whole network.
        waits: Whether it begins when those that do not wait, and those before it, are done.
        takes_noise: Whether an example's part of its sums is bounded, so that noise can hide it.
        tasks: What runs predict that it can close, as in the key ``task``.
    """

    moves_head: ClassVar[bool] = False
    waits: ClassVar[bool] = False
    takes_noise: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = ("classification",)

    @abstractmethod
    def measurements(self) -> Sequence[Measurement]:
        """Return what it asks for, a message each."""

    def held_back_problem(self, examples: int) -> str | None:
        """Return why so many examples, held back by all clients together, do not do; else None."""
        return None


def count_problem(counts: Array, examples: int) -> str | None:
    """Return why counts of examples, each counted once, cannot be of at most so many."""
    if (np.abs(counts - np.rint(counts)) > WHOLE).any() or counts.min() < -WHOLE:
        return "counts that are not whole"
    return f"they are of {counts.sum():g}" if counts.sum() > examples + WHOLE else None


closings: Registry[Closing] = Registry("closing", "bfl.closing")


@closings.register("none")
class NoClosing(Closing):
    """No closing round: the run ends with the pooled posterior."""

    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression")

    def measurements(self) -> Sequence[Measurement]:
        """Return nothing."""
        return ()
