"""Predictions with what a closing has found, from the features of images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.archives import ArrayFile
from bfl.closing import base, conformal, feature_density, heads
from bfl.closing.base import HEAD, Array, Known, one_thread
from bfl.closing.feature_density import FACTORS, FAMILIARITY, MEANS, MIXES, SHARES, UNFAMILIAR
from bfl.closing.heads import AFTER, BEFORE, HELD_BACK, NUMBERS, VALUES, VECTORS
from bfl.evaluation.prediction import Predictions, PredictionStatistics
from bfl.evaluation.regression import INTERVAL, Mixtures
from bfl.posteriors import Posterior

if TYPE_CHECKING:
    from bfl.data.images import Images
    from bfl.evaluation.prediction.monte_carlo import Predictor

UNLIKE = "unlike the training data"  # the warning for a familiarity below the threshold
UNFAMILIAR_SHARE, CONFIDENCE = "unfamiliar-share", "mean-confidence"  # of test and foreign data
OF_CLOSING = (base.ROUNDS_MADE, BEFORE, AFTER, UNFAMILIAR_SHARE)
"""The metrics that a closing adds to a run's, besides those of foreign data."""

SCALARS = {base.FROM_HEAD, UNFAMILIAR, MIXES, heads.TEMPERATURE, INTERVAL}
SCALARS |= {BEFORE, AFTER, HELD_BACK, NUMBERS, conformal.THRESHOLD}
ABOVE_ZERO = (SHARES, heads.TEMPERATURE, VALUES, UNFAMILIAR, INTERVAL)
TOGETHER = (
    (HEAD, base.FROM_HEAD),
    (VECTORS, VALUES),
    (SHARES, MEANS, FACTORS),
    (conformal.THRESHOLD, conformal.THRESHOLDS),
)
"""Arrays that are all there or none of them."""
OUTDATED = ("head-rotation", "longest-features")  # of another head, and under privacy's noise


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
        for name in (name for name in OUTDATED if name in arrays):
            raise ValueError(f"an older bfl has made it, with {name}; make the run again")
        shapes = _expected_shapes(arrays)
        wanted = {name for name in shapes if name in arrays}
        for pair in feature_density.stages_in(arrays, MEANS, FACTORS):
            wanted |= {*pair}
        wanted |= {name for group in TOGETHER if wanted & {*group} for name in group}
        known = arrays.checked(sorted(wanted), shapes)
        for name, value in known.items():
            if value.dtype.kind not in "fb" or not np.isfinite(value).all():
                raise ValueError(f"{name} has values that are not finite numbers")
            if name in ABOVE_ZERO and not (value > 0).all():
                raise ValueError(f"{name} has values that are not above 0")
        return cls(known)

    @property
    def from_head(self) -> bool:
        """True if predictions come from its last layer, and not from draws of the network."""
        return bool(self.known[base.FROM_HEAD])

    @property
    def moves_predictions(self) -> bool:
        """True if its mean predictions are others than those of the network by itself."""
        return self.from_head or (FAMILIARITY in self.known and self._mixes)

    @property
    def _mixes(self) -> bool:
        return bool(self.known.get(MIXES, True))

    @property
    def threshold(self) -> float:
        """The familiarity below which an example is unlike the training data."""
        return float(self.known.get(UNFAMILIAR, 0.01))

    def explain_unlike(self, familiarity: Array, unit: str) -> str:
        """Return how many of (N,) are below the threshold, and by chance, in words; or nothing."""
        if (counts := self.known.get(FAMILIARITY)) is None or not familiarity.size:
            return ""
        most, words = feature_density.unlike_by_chance(counts, self.threshold, familiarity.size)
        unlike = int((familiarity < self.threshold).sum())
        units = f"{familiarity.size:,} {unit}{'s' * (familiarity.size > 1)}"
        begin = f"{unlike:,} of {units} {_is(unlike)} {UNLIKE} "
        words = f"{begin}(familiarity below {100 * self.threshold:g} %). {words.capitalize()}"
        # Of N like the training data one in a hundred times one of them is as strange as that.
        far = familiarity < min(self.threshold, 1.0 / familiarity.size) / 100.0
        if far.any():
            return f"{words}. {far.sum():,} {_is(far.sum())} far stranger than chance explains"
        if 0 < unlike <= most:
            return f"{words}. So chance may be all there is to it"
        return words

    @property
    def summary(self) -> str:
        """The change of the likelihood of held-back examples, in words; empty: unknown."""
        if BEFORE not in self.known:
            return ""
        before, after, count = (float(self.known[name]) for name in (BEFORE, AFTER, HELD_BACK))
        return f"held-back NLL {before:.3f} → {after:.3f} ({count:.0f} examples)"

    def describe(self, shown: dict[tuple[str, str], Predictions]) -> tuple[dict[str, float], str]:
        """Return how much of some data is unfamiliar, and in words also what the closing did.

        Args:
            shown: Predictions by the name of the data and the prefix of its metrics: of test data
                first, which has none, and of foreign data.
        """
        numbers: dict[str, float] = {}
        test, *_ = shown.values()
        words = [self.summary] if self.summary else []
        words.append(f"epistemic part {test.epistemic.mean():.1e}")
        unlike = []
        for (name, prefix), predictions in shown.items():
            if prefix:
                numbers[f"{prefix}{CONFIDENCE}"] = float(predictions.confidence.mean())
            if predictions.familiarity is not None:
                share = float((predictions.familiarity < self.threshold).mean())
                numbers[f"{prefix}{UNFAMILIAR_SHARE}"] = share
                unlike.append(f"{name} {share:.1%}")
        if unlike:
            words.append(f"{UNLIKE}: {', '.join(unlike)}")
        return numbers, f"closing: {'; '.join(words)}"

    def predict_images(
        self,
        predictor: Predictor,
        posterior: Posterior,
        images: Images,
        *,
        otherwise: Callable[[], Predictions],
    ) -> Predictions:
        """Return the predictions for images, by the last layer that was found or ``otherwise``."""
        stages = len(feature_density.stages_in(self.known, MEANS)) > 1
        features = predictor.features_at_mean(posterior, images, stages=stages)
        if self.from_head:
            return self.predict(features, predictor.statistics)
        found: Predictions = self.add_scores(otherwise(), features)
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
        summed, bounded = statistics(), self._bound_features(features)
        with one_thread():
            if NUMBERS in self.known:
                found = heads.predict_numbers(self.known, bounded)
                for means, variances in zip(found.means, found.variances, strict=True):
                    summed.add_gaussians(means, variances)
            else:
                for logits in heads.draw_logits(self.known, bounded):
                    summed.add_logits(logits)
        scored: Predictions = self.add_scores(summed.result(), features)
        return scored

    def add_scores(self, predictions: Any, features: npt.ArrayLike) -> Any:
        """Return predictions with what features (N, F) add: familiarity, scores, sets, interval."""
        familiar, scores = None, {}
        with one_thread():
            if SHARES in self.known:
                means = feature_density.stages_in(self.known, MEANS)
                widths = [self.known[mean].shape[1] for (mean,) in means]
                parts = np.split(np.asarray(features), np.cumsum(widths)[:-1], axis=1)
                bounded = [base.with_one(each)[:, :-1] for each in parts]
                found = feature_density.density(self.known, bounded)
                familiar = feature_density.familiarity(self.known, found)
                scores = {feature_density.DENSITY: found}
            if isinstance(predictions, Mixtures):
                interval = self.known.get(INTERVAL)
                half = None if interval is None else float(interval)
                return replace(predictions, familiarity=familiar, interval_deviations=half)
            sets = conformal.sets(self.known, self._bound_features(features))
        if familiar is not None and self._mixes:
            weights = np.minimum(familiar / min(self.threshold, feature_density.MIXED_BELOW), 1.0)
            predictions = mix_with_uniform(predictions, weights)
        if familiar is not None:
            # A set of what is unlike the calibration examples would promise nothing.
            strange = familiar < self.threshold
            sets = {name: members | strange[:, None] for name, members in sets.items()}
        scores = {**predictions.scores, **scores}
        return replace(predictions, scores=scores, sets=sets, familiarity=familiar)

    def _bound_features(self, features: npt.ArrayLike) -> Array:
        """Return the last layer's features (N, F) as clients have measured them, (N, F + 1)."""
        of_last = np.asarray(features)[:, : len(self.known[HEAD]) - 1]
        return base.with_one(of_last)


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _expected_shapes(arrays: ArrayFile) -> dict[str, tuple[int, ...]]:
    width, classes = arrays[HEAD].shape
    shapes = {HEAD: (width, classes), conformal.THRESHOLDS: (classes,)}
    shapes |= {FAMILIARITY: (len(feature_density.EDGES) - 1,), **dict.fromkeys(SCALARS, ())}
    if VALUES in arrays or VECTORS in arrays:
        outputs = 1 if NUMBERS in arrays else classes
        blocks = 1 if arrays[VALUES].shape[:1] == (1,) else outputs
        side = width * outputs // max(blocks, 1)
        shapes |= {VALUES: (blocks, side), VECTORS: (blocks, side, side)}
    if SHARES in arrays:
        number = arrays[SHARES].size
        shapes[SHARES] = (number,)
        for stage, (mean, factor) in enumerate(feature_density.stages_in(arrays, MEANS, FACTORS)):
            features = arrays[mean].size // max(number, 1) if stage else width - 1
            shapes |= {mean: (number, features), factor: (number, features, features)}
    return shapes


def mix_with_uniform(predictions: Predictions, weights: Array) -> Predictions:
    """Return w p + (1 − w)/C for weights w (N,); rows with a weight of 1 stay as they are.

    With the probability 1 − w nothing is known of an example: what that adds is epistemic, as if
    each class were certain under equally many draws.
    """
    w, classes = weights[:, None], predictions.classes
    mixed = w * predictions.mean_probability + (1.0 - w) / classes
    mean = np.where(w < 1.0, mixed, predictions.mean_probability)
    logs = np.log(np.maximum(mean, np.finfo(float).tiny))
    aleatoric = weights * predictions.aleatoric
    epistemic = np.maximum(1.0 - (mean**2).sum(axis=1) - aleatoric, 0.0)
    return replace(
        predictions,
        mean_probability=mean,
        log_mean_probability=np.where(w < 1.0, logs, predictions.log_mean_probability),
        expected_entropy=weights * predictions.expected_entropy,
        aleatoric=aleatoric,
        epistemic=np.where(weights < 1.0, epistemic, predictions.epistemic),
    )
