"""Predictions with what a closing has found, from the features of images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bfl import randomness
from bfl.archives import ArrayFile
from bfl.closing.base import FEATURE_BOUND, HEAD, LONGEST, Array, Known, with_one
from bfl.closing.bayesian_head import FACTOR, PROBIT, ROTATION, draws, probit_logits
from bfl.closing.conformal import THRESHOLD, THRESHOLDS, sets
from bfl.closing.feature_density import (
    SHARES,
    means_of_stages,
    scores,
    shapes_found,
)
from bfl.closing.temperature import TEMPERATURE
from bfl.cpus import one_thread
from bfl.evaluation.prediction import Predictions, PredictionStatistics
from bfl.posteriors import Posterior

if TYPE_CHECKING:
    from bfl.data.images import Images
    from bfl.evaluation.prediction.monte_carlo import Predictor

FROM_HEAD = "from-head"
"""The array that is true where predictions come from the last layer that was found."""

TOGETHER = ((HEAD, FROM_HEAD), (FACTOR, ROTATION), (THRESHOLD, THRESHOLDS))
"""Arrays that are all there or none of them."""


@dataclass(frozen=True)
class Closed:
    """A network's closing: the arrays that were found, and predictions with them.

    Attributes:
        known: The arrays by name, as ``closing.npz`` holds them.
    """

    known: Known

    @classmethod
    def read(cls, arrays: ArrayFile) -> Closed:
        """Return what the arrays of a ``closing.npz`` say; arrays of other closings are left.

        Raises:
            KeyError: An array is missing.
            DataError: An array cannot be read.
            ValueError: The arrays do not go together.
        """
        width, classes = arrays.header(HEAD).shape
        features = width - 1
        number, *_ = (*arrays.header(SHARES).shape, 0) if SHARES in arrays else (0,)
        blocks = (*arrays.header(FACTOR).shape, 0, 0)[:2] if FACTOR in arrays else (0, 0)
        stages = [arrays.header(name).shape for name in means_of_stages(arrays)[1:]]
        wide = [features, *(shape[-1] for shape in stages if shape)]
        density = shapes_found(number, wide)
        shapes = {
            HEAD: (width, classes),
            FROM_HEAD: (),
            LONGEST: (),
            FACTOR: (blocks[0], blocks[1], blocks[1]),
            ROTATION: (classes, classes),
            PROBIT: (),
            SHARES: (number,),
            **density,
            TEMPERATURE: (),
            THRESHOLD: (),
            THRESHOLDS: (classes,),
        }
        if FACTOR in arrays and blocks[0] * blocks[1] != width * classes:
            raise ValueError(f"{FACTOR} has the shape {blocks}, and {HEAD} {(width, classes)}")
        wanted = {name for name in shapes if name in arrays}
        together = (*TOGETHER, (SHARES, *density))
        wanted |= {name for group in together if wanted & {*group} for name in group}
        known = arrays.checked(sorted(wanted), shapes=shapes)
        for name, value in known.items():
            if value.dtype.kind not in "fb" or not np.isfinite(value).all():
                raise ValueError(f"{name} has values that are not finite numbers")
            if name in (SHARES, TEMPERATURE, LONGEST) and not (value > 0).all():
                raise ValueError(f"{name} has values that are not above 0")
        return cls(known)

    @property
    def from_head(self) -> bool:
        """True if predictions come from its last layer, and not from draws of the network."""
        return bool(self.known[FROM_HEAD])

    def of_images(
        self,
        predictor: Predictor,
        posterior: Posterior,
        images: Images,
        *,
        samples: int,
        seed: int,
        otherwise: Callable[[], Predictions],
    ) -> Predictions:
        """Return the predictions for images (N, H, W, C), with their scores.

        Args:
            images: uint8 images.
            samples: How many draws of the last layer.
            otherwise: Predicts where the last layer that was found does not.
        """
        stages = len(means_of_stages(self.known)) > 1
        features = predictor.features_at_mean(posterior, images, stages=stages)
        if self.from_head:
            return self.predict(features, samples=samples, seed=seed)
        return self.scored(otherwise(), features)

    def predict(self, features: npt.ArrayLike, *, samples: int, seed: int) -> Predictions:
        """Return the mean predictions of the last layer's posterior, with the scores of images.

        Args:
            features: (N, F) what the last layer takes, at the mean of the weights before it; behind
                them those of stages where the density has such.
        """
        phi = self.bounded(features)
        temperature = float(self.known.get(TEMPERATURE, 1.0))
        generator = randomness.generator(seed, "closing", "head")
        statistics = PredictionStatistics()
        with one_thread():
            if {PROBIT, FACTOR} <= self.known.keys():
                statistics.add_logits(probit_logits(self.known, phi, temperature))
                return self.scored(statistics.result(), features)
            for head in draws(self.known, samples, generator):
                statistics.add_logits(phi @ head / temperature)
        return self.scored(statistics.result(), features)

    def scored(self, predictions: Predictions, features: npt.ArrayLike) -> Predictions:
        """Return predictions with the scores and sets of their images' features (N, F)."""
        longest = float(self.known.get(LONGEST, FEATURE_BOUND))
        widths = [self.known[name].shape[1] for name in means_of_stages(self.known)]
        with one_thread():
            parts = np.split(np.asarray(features), np.cumsum(widths)[:-1], axis=1)
            found = scores(self.known, [with_one(each, longest)[:, :-1] for each in parts])
            return replace(predictions, scores=found, sets=self.sets(features))

    def sets(self, features: npt.ArrayLike) -> dict[str, npt.NDArray[np.bool_]]:
        """Return the conformal prediction sets (N, C) by name; none where there are none."""
        return sets(self.known, self.bounded(features))

    def bounded(self, features: npt.ArrayLike) -> Array:
        """Return the last layer's features (N, F) as clients have measured them, (N, F + 1)."""
        of_last = np.asarray(features)[:, : len(self.known[HEAD]) - 1]
        return with_one(of_last, float(self.known.get(LONGEST, FEATURE_BOUND)))


def begun(head: Array, *, from_head: bool, longest: float | None = None) -> Known:
    """Return what is known before the first round of sums.

    Args:
        head: The network's own last layer (F + 1, C), biases last.
        from_head: See ``Closed.from_head``.
        longest: The longest features under privacy's noise; None: there is none.
    """
    bound = {} if longest is None else {LONGEST: np.array(longest)}
    return {HEAD: np.asarray(head, np.float64), FROM_HEAD: np.array(from_head), **bound}
