"""Closings: sums over clients' data, and what the server makes of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from bfl.errors import ConfigurationError
from bfl.posteriors import Manifest, Posterior
from bfl.registry import Component, Registry

if TYPE_CHECKING:
    from bfl.evaluation.regression import Mixtures

Array = npt.NDArray[np.float64]
Sums = Mapping[str, Array]
Known = Mapping[str, npt.NDArray[Any]]
"""The arrays that closings have found so far, by name; at the end those of ``closing.npz``."""

HEAD = "head"  # the last layer's weights (F + 1, C), its biases in the last row
FROM_HEAD = "from-head"  # whether predictions come from it, and not from draws of the network
ROUNDS_MADE = "closing-rounds-made"  # of sums; a metric, too

FEATURE_BOUND = 1e3  # longer features are scaled to it, so an example adds at most its square
ROUNDED = 1e-4  # how far honest sums are from exact ones: for each example, and of their size
WHOLE = 1e-2  # how far sums of whole numbers are from whole ones
HELD_BACK_SHARE = 0.1  # the default of calibration-share where there is a closing
LEAST_HELD_BACK = 3  # examples of each client, if it has twice as many


def one_thread() -> AbstractContextManager[object]:
    """Return a context in which linear algebra has one thread: no bit depends on how many."""
    import scipy.linalg  # noqa: F401 - a library that is loaded later would keep its threads
    from threadpoolctl import threadpool_limits

    limited: AbstractContextManager[object] = threadpool_limits(limits=1)
    return limited


class Closing(Component, ABC):
    """One thing that sums over all clients' data tell of the final network.

    Attributes:
        moves_head: Whether predictions come from the last layer, and no longer from draws of the
            whole network.
        waits: Whether it begins when those that do not wait are done.
        tasks: What runs predict that it can close, as in the key ``task``.
    """

    moves_head: ClassVar[bool] = False
    waits: ClassVar[bool] = False
    tasks: ClassVar[tuple[str, ...]] = ("classification",)

    @abstractmethod
    def measurements(self) -> Sequence[Measurement]:
        """Return what it asks for, a message each."""

    def held_back_problem(self, examples: int) -> str | None:
        """Return why so many examples, held back by all clients together, do not do; else None."""
        return None


closings: Registry[Closing] = Registry("closing", "bfl.closing")


@closings.register("none")
class NoClosing(Closing):
    """No closing round: the run ends with the pooled posterior."""

    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression")

    def measurements(self) -> Sequence[Measurement]:
        """Return nothing."""
        return ()


@dataclass(frozen=True)
class Sizes:
    """Sizes of the last layer, of F features and C classes, and the widths Fᵢ of stages before."""

    features: int
    classes: int
    stages: Sequence[int] = ()


def last_layer(posterior: Posterior, manifest: Manifest | None) -> tuple[Sizes, Array]:
    """Return the sizes of a network's last layer, and its weights (F + 1, C), biases last."""
    if manifest is None:
        raise ConfigurationError("a closing needs the manifest of the network's parameters")
    gaussian = iter(manifest.split(posterior.mean, gaussian=True))
    point = iter(manifest.split(posterior.point, gaussian=False))
    *_, kernel, bias = [next(gaussian if each.gaussian else point) for each in manifest]
    if kernel.ndim != 2 or bias.shape != kernel.shape[1:]:
        raise ConfigurationError(
            "a closing needs a network that ends with a dense layer with biases, and this one "
            f"ends with tensors of shapes {kernel.shape} and {bias.shape}; allowed: another "
            'model, or closing="none"'
        )
    weights = np.concatenate([kernel, bias[None]]).astype(np.float64)
    return Sizes(len(kernel), len(bias), [*manifest.stages.values()]), weights


def sums_as_posterior(sums: npt.NDArray[Any]) -> Posterior:
    """Return sums (S,) as they travel: as the point parameters of a posterior without Gaussians."""
    return Posterior(np.zeros(0, np.float32), np.zeros(0, np.float32), sums)


@dataclass(frozen=True)
class Examples:
    """Labelled examples as the last layer sees them.

    Attributes:
        features: (N, F + 1) what it takes, with a 1 for the biases.
        labels: (N,) classes, of C.
        stages: (N, Fᵢ) what the stages of the network before take.
        own: (N,) log-likelihoods by draws of the whole network, where it is drawn.
        targets: (N,) numbers of mean 0 and deviation 1, where these are predicted.
        drawn: Predictions of them by draws of the whole network, where it is drawn.
    """

    features: Array
    labels: npt.NDArray[np.integer[Any]]
    classes: int
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
        return replace(
            self,
            features=self.features[rows],
            labels=self.labels[rows],
            stages=[stage[rows] for stage in self.stages],
            own=None if self.own is None else self.own[rows],
            targets=self.targets[rows],
            drawn=self.drawn and self.drawn.take(np.arange(len(self.labels))[rows]),
        )


class Measurement(ABC):
    """One message of a closing: sums that clients add up, and their result on the server.

    Attributes:
        inputs: Names of arrays that clients need besides the network, those of stages with them.
        on_held_back: Whether it measures on the examples that clients do not train on.
        compares_draws: Whether it needs ``Examples.own``.
    """

    inputs: ClassVar[tuple[str, ...]] = ()
    on_held_back: ClassVar[bool] = False
    compares_draws: ClassVar[bool] = False

    @abstractmethod
    def sums(self, sizes: Sizes) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of its sums by their names."""

    @abstractmethod
    def measure(self, known: Known, examples: Examples) -> Sums:
        """Return a client's sums over its examples, at least one, from its ``inputs``."""

    def find_problem(self, sums: Sums, examples: int) -> str | None:
        """Return why sums cannot be of at most so many examples; None if they may.

        Honest sums pass, also rounded to float32 or to a grid as fine as that of masked sums.
        """
        return None

    @abstractmethod
    def fold(self, known: Known, sums: Sums) -> Known:
        """Return what the server knows after the round, from the sums of all clients together."""


class Histogram(Measurement):
    """Counts of held-back examples, in ``bins``, to one of which each example adds 1."""

    on_held_back: ClassVar[bool] = True
    bins: ClassVar[int]
    by_class: ClassVar[bool] = False

    @abstractmethod
    def places(self, known: Known, examples: Examples) -> Any:
        """Return which count each example adds to: by class and bin, or by bin."""

    def sums(self, sizes: Sizes) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of the counts."""
        return {"counts": (sizes.classes, self.bins) if self.by_class else (self.bins,)}

    def measure(self, known: Known, examples: Examples) -> Sums:
        """Return how many examples have each place."""
        counts = np.zeros(self.sums(examples.sizes)["counts"])
        np.add.at(counts, self.places(known, examples), 1.0)
        return {"counts": counts}

    def find_problem(self, sums: Sums, examples: int) -> str | None:
        """Return why the counts cannot be of at most so many examples."""
        return count_problem(sums["counts"], examples)


def count_problem(counts: Array, examples: int) -> str | None:
    """Return why counts of examples, each counted once, cannot be of at most so many."""
    if (np.abs(counts - np.rint(counts)) > WHOLE).any() or counts.min() < -WHOLE:
        return "counts that are not whole"
    return f"they are of {counts.sum():g}" if counts.sum() > examples + WHOLE else None


def rank_of(counts: Array, share: float) -> int | None:
    """Return the bin of the ⌈(n + 1) share⌉-th smallest of n counted; None without so many."""
    rank = math.ceil((round(counts.sum()) + 1) * share - 1e-9)
    reached = np.flatnonzero(np.cumsum(counts) >= rank - 0.5)
    return int(reached[0]) if reached.size else None


def schedule(chain: Sequence[Closing]) -> list[tuple[Measurement, ...]]:
    """Return what clients measure in each round of sums, one round after the other."""
    at_once = [each.measurements() for each in chain if not each.waits]
    rounds = [tuple(each for each in row if each) for row in zip_longest(*at_once)]
    waiting = [each.measurements() for each in chain if each.waits]
    return rounds + [(each,) for measurements in waiting for each in measurements]


@dataclass(frozen=True)
class SumsRound:
    """A round of sums of several closings; each client sends one vector, in the order of ``sums``.

    Linear algebra has one thread, so that no bit depends on how many there are.
    """

    measurements: Sequence[Measurement]
    sizes: Sizes

    @classmethod
    def next_round(cls, chain: Sequence[Closing], known: Known, sizes: Sizes) -> SumsRound:
        """Return the next round; it measures nothing where all rounds have been made."""
        made = int(known.get(ROUNDS_MADE, 0))
        return cls(next(iter(schedule(chain)[made:]), ()), sizes)

    def inputs(self, known: Known) -> Known:
        """Return the arrays that clients need."""
        names = {ROUNDS_MADE}.union(*(each.inputs for each in self.measurements))
        return {name: np.asarray(v) for name, v in known.items() if name.partition(".")[0] in names}

    def measure(self, known: Known, examples: Callable[[bool], Examples | None]) -> Array:
        """Return a client's vector; ``examples`` gives those held back, if passed True, or None."""
        vector = []
        with one_thread():
            for each in self.measurements:
                seen = examples(each.on_held_back)
                found = each.measure(known, seen) if seen else {}
                for name, shape in each.sums(self.sizes).items():
                    vector.append(np.ravel(found.get(name, np.zeros(shape))))
        return np.concatenate(vector)

    def find_problem(self, vector: Array, examples: int) -> str | None:
        """Return why so many examples cannot have such sums; else None."""
        vector, most = np.asarray(vector, np.float64), greatest(examples)
        if beyond := int(np.count_nonzero(~(np.abs(vector) <= most * (1.0 + ROUNDED)))):
            return f"{beyond} of {vector.size} sums are beyond ±{most:g}"
        for each, sums in self._split(vector):
            if problem := each.find_problem(sums, examples):
                name = type(each).__name__.lstrip("_")
                return f"sums ({name}) that {examples} examples cannot have: {problem}"
        return None

    def fold(self, known: Known, total: Array) -> Known:
        """Return what is known after the round, from all clients' vectors, added up."""
        known = {**known, ROUNDS_MADE: np.array(int(known.get(ROUNDS_MADE, 0)) + 1)}
        with one_thread():
            for each, sums in self._split(total):
                known = each.fold(known, sums)
        return known

    @property
    def size(self) -> int:
        """The length S of a client's vector."""
        shapes = (shape for each in self.measurements for shape in each.sums(self.sizes).values())
        return sum(map(math.prod, shapes))

    def _split(self, vector: Array) -> Iterator[tuple[Measurement, Sums]]:
        start = 0
        for each in self.measurements:
            sums = {}
            for name, shape in each.sums(self.sizes).items():
                end = start + math.prod(shape)
                sums[name] = vector[start:end].reshape(shape)
                start = end
            yield each, sums


def greatest(examples: int) -> float:
    """Return the greatest absolute value of any sum over so many examples."""
    return examples * FEATURE_BOUND**2


def with_one(features: npt.ArrayLike) -> Array:
    """Return features (N, F) as (N, F + 1), no longer than the bound, with a 1 behind."""
    given = np.asarray(features, np.float64)
    lengths = np.linalg.norm(given, axis=1, keepdims=True)
    bounded = given * np.minimum(1.0, FEATURE_BOUND / np.maximum(lengths, 1.0))
    return np.concatenate([bounded, np.ones((len(given), 1))], axis=1)


def held_back_count(examples: int, share: float) -> int:
    """Return how many of a client's examples it holds back from training, at most half of them."""
    if share <= 0.0:
        return 0
    return min(max(math.ceil(share * examples - 1e-9), LEAST_HELD_BACK), examples // 2)


def packed_size(side: int) -> int:
    """Return the length of what ``pack`` makes of a matrix (S, S)."""
    return side * (side + 1) // 2


def pack(matrices: Array) -> Array:
    """Return the upper triangles of symmetric matrices (..., S, S) as vectors."""
    rows, columns = np.triu_indices(matrices.shape[-1])
    return np.asarray(matrices[..., rows, columns])


def unpack(triangles: Array) -> Array:
    """Return the symmetric matrices that ``pack`` has made vectors of."""
    side = math.isqrt(2 * triangles.shape[-1])
    matrices = np.zeros((*triangles.shape[:-1], side, side))
    rows, columns = np.triu_indices(side)
    matrices[..., rows, columns] = triangles
    return matrices + np.triu(matrices, 1).swapaxes(-1, -2)
