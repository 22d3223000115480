"""Foreign and corrupted images: how well each uncertainty tells them, and metrics by strength."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.closing.feature_density import DENSITY
from bfl.data.corruptions import STRENGTHS, corrupted
from bfl.data.datasets.foreign import ForeignImages
from bfl.data.images import Images
from bfl.evaluation.metrics import evaluate
from bfl.evaluation.prediction import Predictions
from bfl.evaluation.prediction.predictions import FloatArray, IntArray
from bfl.evaluation.uncertainty import measure_all
from bfl.experiments.results.run_folder import FOREIGN, RunFolder

METRICS = ("accuracy", "negative-log-likelihood", "expected-calibration-error")


CORRUPTED = "corrupted-"
"""The prefix of numbers of corrupted images, means over the strengths from 1."""

ByStrength = Mapping[str, Sequence[Predictions]]
"""Predictions for images by corruption, at strengths 0 to 5; strength 0 are the images as such."""


def predicted_by_strength(
    names: Iterable[str],
    images: Images,
    clean: Predictions,
    predict: Callable[[Images], Predictions],
) -> ByStrength:
    """Return the predictions for images under each corruption.

    Args:
        images: uint8 (N, H, W, C) images.
    """
    return {
        name: [clean, *(predict(corrupted(images, name, strength)) for strength in STRENGTHS)]
        for name in names
    }


def by_strength(
    shown: ByStrength, labels: npt.ArrayLike, settings: Mapping[str, Any]
) -> dict[str, dict[str, list[float]]]:
    """Return accuracy, NLL and calibration error of each corruption at strengths 0 to 5.

    Args:
        labels: (N,) the images' classes.
        settings: The configuration, of which each metric takes its own keys.

    Returns:
        ``found[corruption][metric]``, a number for each strength. It is the content of
        ``corruptions.json``.
    """
    found = {
        corruption: [evaluate(predictions, labels, settings) for predictions in rows]
        for corruption, rows in shown.items()
    }
    return {
        corruption: {name: [row[name] for row in rows] for name in METRICS}
        for corruption, rows in found.items()
    }


def means_by_corruption(found: Mapping[str, Mapping[str, list[float]]]) -> dict[str, float]:
    """Return the means over strengths 1 to 5 of what ``by_strength`` gives."""
    return {
        f"{CORRUPTED}{corruption}-{metric}": float(np.mean(values[1:]))
        for corruption, by_metric in found.items()
        for metric, values in by_metric.items()
    }


WITHOUT_DENSITY = "predictive-entropy"

BEFORE_CLOSING = "before-closing-"
"""The prefix of numbers of the posterior without its closing."""

OF_FOREIGN = "ood-"
"""The prefix of numbers of foreign images."""

Shown = Mapping[str, Predictions]
"""Predictions for the same images, by the prefix of their uncertainties' names."""

ShownForeign = tuple[ForeignImages, Shown]
"""Foreign images, and the predictions for them."""

QUANTILES = np.linspace(0.0, 1.0, 201)


def write_foreign(
    folder: RunFolder,
    test: Shown,
    foreign: Iterable[tuple[str, bool, Shown]],
    settings: Mapping[str, Any],
) -> dict[str, float]:
    """Write how well foreign images are told from test images; return the run's metrics of it.

    The metrics are of one score, which is not picked by the result: the density of features where a
    closing has found one, and otherwise the entropy of predictions. The arguments are those of
    ``evaluated_foreign``.

    Returns:
        ``ood-NAME-auroc``, ``ood-NAME-aupr`` and ``ood-NAME-fpr95`` of each source.
    """
    content = evaluated_foreign(test, foreign, settings)
    if not content:
        return {}
    folder.write_json(FOREIGN, content)
    return headline(content)


def headline(content: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of ``foreign.json`` that are of the run's one score."""
    return {
        f"{OF_FOREIGN}{name}-{what}": value
        for name, source in content["sources"].items()
        for what, value in source["uncertainties"][content["score"]].items()
    }


def foreign_to_some(
    test: Predictions,
    foreign: Iterable[ShownForeign],
    positions: IntArray,
    settings: Mapping[str, Any],
) -> dict[str, float]:
    """Return how well foreign images are told from some of the test images, by the run's score.

    Of test images that have been changed they are the same ones.

    Args:
        positions: Which test images, at least one.
        settings: As for ``evaluated_foreign``.
    """
    some = {"": test.take(positions)}
    shown = [
        (each.name, each.near, {"": by[""].take(positions) if each.changed else by[""]})
        for each, by in foreign
    ]
    content = evaluated_foreign(some, shown, settings)
    return headline(content) if content else {}


def evaluated_foreign(
    test: Shown, foreign: Iterable[tuple[str, bool, Shown]], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the content of ``foreign.json``; nothing without foreign images.

    Args:
        test: The predictions for the test images: the run's under "", and those before its closing
            under ``BEFORE_CLOSING`` where they are others.
        foreign: The name of each foreign source, whether it is near, and its predictions.
        settings: The configuration, of which each uncertainty takes its own keys.
    """
    inside = _measured(test, settings)
    score = DENSITY if DENSITY in inside else WITHOUT_DENSITY
    sources: dict[str, Any] = {}
    for name, near, shown in foreign:
        outside = _measured(shown, settings)
        sources[name] = {
            "near": near,
            "examples": shown[""].examples,
            "uncertainties": {by: detection(inside[by], outside[by]) for by in inside},
            "quantiles": np.quantile(outside[score], QUANTILES).tolist(),
        }
    if not sources:
        return {}
    test_quantiles = np.quantile(inside[score], QUANTILES).tolist()
    return {"score": score, "test": test_quantiles, "sources": sources}


def numbers_of_foreign(content: Mapping[str, Any]) -> dict[str, float]:
    """Return all numbers of ``foreign.json``: ``ood-NAME-UNCERTAINTY-auroc`` and its like."""
    return {
        f"{OF_FOREIGN}{name}-{by}-{what}": float(value)
        for name, source in content["sources"].items()
        for by, found in source["uncertainties"].items()
        for what, value in found.items()
    }


def told_of_foreign(content: Mapping[str, Any]) -> str:
    """Return in a line how well the run's score tells the foreign images of ``foreign.json``."""
    score = content["score"]
    found = (
        f"{name} ({'near' if source['near'] else 'far'}) "
        f"{source['uncertainties'][score]['auroc']:.3f}"
        for name, source in content["sources"].items()
    )
    return f"foreign images are told from test images by {score}, AUROC: {', '.join(found)}"


def _measured(shown: Shown, settings: Mapping[str, Any]) -> dict[str, FloatArray]:
    return {
        f"{prefix}{name}": values
        for prefix, predictions in shown.items()
        for name, values in measure_all(predictions, settings).items()
    }


def detection(inside: npt.ArrayLike, foreign: npt.ArrayLike) -> dict[str, float]:
    """Return AUROC, AUPR and FPR95 of a score, the foreign images being positive.

    ``auroc`` is the probability that a foreign image has the higher score, ties counted half;
    ``aupr`` the average precision; ``fpr95`` the share of test images that are taken for foreign
    where 95 % of the foreign ones are.

    Args:
        inside: (N,) scores of test images, higher where an image looks more foreign.
        foreign: (M,) scores of foreign images.

    Source: Hendrycks and Gimpel (2017); Yang et al. (2022), "OpenOOD", for the three together.
    """
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    score = np.concatenate([np.asarray(inside, np.float64), np.asarray(foreign, np.float64)])
    positive = np.arange(len(score)) >= len(np.asarray(inside))
    false, true, _ = roc_curve(positive, score, drop_intermediate=False)
    return {
        "auroc": float(roc_auc_score(positive, score)),
        "aupr": float(average_precision_score(positive, score)),
        "fpr95": float(false[np.argmax(true >= 0.95)]),
    }
