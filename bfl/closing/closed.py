"""Predictions with what a closing has found, from the features of images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.archives import ArrayFile
from bfl.closing.base import (
    DEVIATION,
    FEATURE_BOUND,
    FROM_HEAD,
    HEAD,
    LONGEST,
    Array,
    Known,
    with_one,
)
from bfl.closing.bayesian_head import (
    AFTER,
    BEFORE,
    HELD_BACK,
    TEMPERATURE,
    VALUES,
    VECTORS,
    Head,
)
from bfl.closing.chain import ROUNDS_MADE
from bfl.closing.conformal import THRESHOLD, THRESHOLDS, sets
from bfl.closing.feature_density import (
    DENSITY,
    EDGES,
    FAMILIARITY,
    MIXED_BELOW,
    MIXES,
    SHARES,
    density,
    familiarity,
    found_shapes,
    means_of_stages,
)
from bfl.closing.feature_density import THRESHOLD as UNFAMILIAR
from bfl.closing.gaussian_head import NUMBERS, predicted
from bfl.cpus import one_thread
from bfl.evaluation.prediction import Predictions, PredictionStatistics
from bfl.evaluation.regression import INTERVAL, Mixtures
from bfl.posteriors import Posterior

if TYPE_CHECKING:
    from bfl.data.images import Images
    from bfl.evaluation.prediction.monte_carlo import Predictor

TOGETHER = (
    (HEAD, FROM_HEAD),
    (VECTORS, VALUES),
    (FAMILIARITY, UNFAMILIAR, MIXES),
    (THRESHOLD, THRESHOLDS),
)
"""Arrays that are all there or none of them."""

UNFAMILIAR_SHARE, CONFIDENCE = "unfamiliar-share", "mean-confidence"
"""Metrics of test data, and of foreign ones: the share that is unlike the training data."""

OF_CLOSING = (ROUNDS_MADE, BEFORE, AFTER, UNFAMILIAR_SHARE)
"""The metrics that a closing adds to a run's, besides those of foreign data."""

UNLIKE = "unlike the training data"
"""The warning for an example whose familiarity is below the threshold."""

ABOVE_ZERO = (SHARES, TEMPERATURE, LONGEST, VALUES, UNFAMILIAR, INTERVAL)


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
        if "head-rotation" in arrays:
            raise ValueError("an older bfl has made it; bfl close makes it again")
        width, classes = arrays[HEAD].shape
        number, *_ = (*arrays[SHARES].shape, 0) if SHARES in arrays else (0,)
        blocks = (*arrays[VECTORS].shape, 0, 0)[:2] if VECTORS in arrays else (0, 0)
        stages = [arrays[name].shape for name in means_of_stages(arrays)[1:]]
        of_density = found_shapes(number, [width - 1, *(shape[-1] for shape in stages if shape)])
        shapes = {
            HEAD: (width, classes),
            FROM_HEAD: (),
            LONGEST: (),
            DEVIATION: (),
            VECTORS: (blocks[0], blocks[1], blocks[1]),
            VALUES: blocks,
            SHARES: (number,),
            **of_density,
            FAMILIARITY: (len(EDGES) - 1,),
            UNFAMILIAR: (),
            MIXES: (),
            TEMPERATURE: (),
            BEFORE: (),
            AFTER: (),
            HELD_BACK: (),
            THRESHOLD: (),
            THRESHOLDS: (classes,),
            NUMBERS: (),
            INTERVAL: (),
        }
        of_posterior = width * (1 if NUMBERS in arrays else classes)
        fits = blocks[0] * blocks[1] == of_posterior and (NUMBERS not in arrays or blocks[0] == 1)
        if VECTORS in arrays and not fits:
            raise ValueError(f"{VECTORS} has the shape {blocks}, and {HEAD} {(width, classes)}")
        wanted = {name for name in shapes if name in arrays}
        together = (*TOGETHER, (SHARES, *of_density))
        wanted |= {name for group in together if wanted & {*group} for name in group}
        known = arrays.checked(sorted(wanted), shapes=shapes)
        for name, value in known.items():
            if value.dtype.kind not in "fb" or not np.isfinite(value).all():
                raise ValueError(f"{name} has values that are not finite numbers")
            if name in ABOVE_ZERO and not (value > 0).all():
                raise ValueError(f"{name} has values that are not above 0")
        return cls(known)

    @property
    def from_head(self) -> bool:
        """True if predictions come from its last layer, and not from draws of the network."""
        return bool(self.known[FROM_HEAD])

    @property
    def moves_predictions(self) -> bool:
        """True if its mean predictions are others than those of the network by itself."""
        return self.from_head or bool(self.known.get(MIXES, False))

    @property
    def threshold(self) -> float:
        """The familiarity below which an example is unlike the training data; 0: none is known."""
        return float(self.known.get(UNFAMILIAR, 0.0))

    @property
    def summary(self) -> str:
        """The change of the likelihood of held-back examples, in words; empty: unknown."""
        if BEFORE not in self.known:
            return ""
        before, after, count = (float(self.known[name]) for name in (BEFORE, AFTER, HELD_BACK))
        return f"held-back NLL {before:.3f} → {after:.3f} ({count:.0f} examples)"

    def predict_images(
        self,
        predictor: Predictor,
        posterior: Posterior,
        images: Images,
        *,
        otherwise: Callable[[], Predictions],
    ) -> Predictions:
        """Return the predictions for images (N, H, W, C), with their scores.

        Args:
            images: uint8 images.
            otherwise: Predicts where the last layer that was found does not.
        """
        stages = len(means_of_stages(self.known)) > 1
        features = predictor.features_at_mean(posterior, images, stages=stages)
        if self.from_head:
            return self.predict(features, predictor.statistics)
        found: Predictions = self.scored(otherwise(), features)
        return found

    def predict(
        self, features: npt.ArrayLike, statistics: Callable[[], Any] = PredictionStatistics
    ) -> Predictions:
        """Return the mean predictions of the last layer's posterior, with the scores of images.

        Args:
            features: (N, F) what the last layer takes, at the mean of the weights before it; behind
                them those of stages where the density has such.
            statistics: Makes what sums up the samples, by what the network predicts.
        """
        summed, bounded = statistics(), self._bounded(features)
        with one_thread():
            if NUMBERS in self.known:
                found = predicted(self.known, bounded)
                for means, variances in zip(found.means, found.variances, strict=True):
                    summed.add_gaussians(means, variances)
            else:
                for logits in Head.of(self.known).logits(bounded):
                    summed.add_logits(logits)
        scored: Predictions = self.scored(summed.result(), features)
        return scored

    def scored(self, predictions: Any, features: npt.ArrayLike) -> Any:
        """Return predictions with the scores and sets of their images' features (N, F).

        Those of the least familiar images go to the uniform, where the closing mixes.
        Numbers get their familiarity, and their interval.
        """
        familiar, scores = None, {}
        with one_thread():
            if SHARES in self.known:
                widths = [self.known[name].shape[1] for name in means_of_stages(self.known)]
                parts = np.split(np.asarray(features), np.cumsum(widths)[:-1], axis=1)
                longest = float(self.known.get(LONGEST, FEATURE_BOUND))
                found = density(self.known, [with_one(each, longest)[:, :-1] for each in parts])
                familiar, scores = familiarity(self.known, found), {DENSITY: found}
            if isinstance(predictions, Mixtures):
                interval = self.known.get(INTERVAL)
                half = None if interval is None else float(interval)
                return replace(predictions, familiarity=familiar, interval_deviations=half)
            held = sets(self.known, self._bounded(features))
        if familiar is not None and self.known[MIXES]:
            weights = np.minimum(familiar / min(self.threshold, MIXED_BELOW), 1.0)
            predictions = mix_with_uniform(predictions, weights)
            # A set of what is unlike the calibration examples would promise nothing.
            strange = familiar < self.threshold
            held = {name: members | strange[:, None] for name, members in held.items()}
        return replace(predictions, scores=scores, sets=held, familiarity=familiar)

    def _bounded(self, features: npt.ArrayLike) -> Array:
        """Return the last layer's features (N, F) as clients have measured them, (N, F + 1)."""
        of_last = np.asarray(features)[:, : len(self.known[HEAD]) - 1]
        return with_one(of_last, float(self.known.get(LONGEST, FEATURE_BOUND)))


def mix_with_uniform(predictions: Predictions, weights: Array) -> Predictions:
    """Return w p + (1 − w)/C for weights w (N,); rows with a weight of 1 stay as they are.

    With the probability 1 − w nothing is known of an example: what that adds is epistemic, as if
    each class were certain under equally many draws.
    """
    w, classes = weights[:, None], predictions.classes
    mixed = w * predictions.mean_probability + (1.0 - w) / classes
    mean = np.where(w < 1.0, mixed, predictions.mean_probability)
    aleatoric = weights * predictions.aleatoric
    whole = 1.0 - (mean**2).sum(axis=1)
    return replace(
        predictions,
        mean_probability=mean,
        log_mean_probability=np.where(
            w < 1.0,
            np.log(np.maximum(mean, np.finfo(float).tiny)),
            predictions.log_mean_probability,
        ),
        expected_entropy=weights * predictions.expected_entropy,
        aleatoric=aleatoric,
        epistemic=np.where(
            weights < 1.0, np.maximum(whole - aleatoric, 0.0), predictions.epistemic
        ),
    )
