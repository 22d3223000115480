"""Evaluation on foreign and corrupted images: detection by uncertainties; metrics by strength."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.closing.feature_density import DENSITY
from bfl.data.datasets.foreign import STRENGTHS, ForeignImages, corrupted
from bfl.data.images import Images
from bfl.evaluation.metrics import evaluate
from bfl.evaluation.prediction import Predictions
from bfl.evaluation.uncertainty import measure_all
from bfl.experiments.results.run_folder import FOREIGN, RunFolder

METRICS = ("accuracy", "negative-log-likelihood", "expected-calibration-error")
"""The metrics of corrupted images."""

CORRUPTED = "corrupted-"
"""The prefix of numbers of logits of corrupted images that are not finite."""

BEFORE_CLOSING = "before-closing-"
"""The prefix of metrics of the posterior without its closing."""

OF_FOREIGN = "ood-"
"""The prefix of metrics of foreign images."""

QUANTILES = np.linspace(0.0, 1.0, 201)

ByStrength = Mapping[str, Sequence[Predictions]]
"""Predictions for images by corruption, at strengths 0 to 5; at 0 the images are unchanged."""

Shown = Mapping[str, Predictions]
"""Predictions for the same images, by the prefix of their uncertainties' names."""

ShownForeign = tuple[ForeignImages, Shown]
"""Foreign images, and the predictions for them."""


def predicted_by_strength(
    names: Iterable[str],
    images: Images,
    clean: Predictions,
    predict: Callable[[Images], Predictions],
) -> ByStrength:
    """Return the predictions for uint8 images (N, H, W, C) under each corruption."""
    return {
        name: [clean, *(predict(corrupted(images, name, strength)) for strength in STRENGTHS)]
        for name in names
    }


def by_strength(
    shown: ByStrength, labels: npt.ArrayLike, settings: Mapping[str, Any]
) -> dict[str, dict[str, list[float]]]:
    """Return ``found[corruption][metric]``: a list at strengths 0 to 5, by labels (N,)."""
    found: dict[str, dict[str, list[float]]] = {}
    for corruption, by_level in shown.items():
        rows = [evaluate(predictions, labels, settings) for predictions in by_level]
        found[corruption] = {name: [row[name] for row in rows] for name in METRICS}
    return found


def write_foreign(
    folder: RunFolder,
    test: Shown,
    foreign: Iterable[tuple[str, bool, Shown]],
    settings: Mapping[str, Any],
) -> dict[str, float]:
    """Write the detection of foreign images to ``run.json``; return ``ood-NAME-auroc`` and others.

    These are of one score, which does not depend on the result: the feature density of a closing
    or, without one, the predictive entropy. See ``evaluated_foreign`` for the arguments.
    """
    content = evaluated_foreign(test, foreign, settings)
    if content:
        folder.write_json(FOREIGN, content)
    return {
        f"{OF_FOREIGN}{name}-{what}": value
        for name, source in content.get("sources", {}).items()
        for what, value in source["uncertainties"][content["score"]].items()
    }


def evaluated_foreign(
    test: Shown, foreign: Iterable[tuple[str, bool, Shown]], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the content of ``run.json:foreign``; nothing without foreign images.

    Args:
        test: The predictions for the test images: the run's under "", and those before a closing
            under ``BEFORE_CLOSING``, if they differ.
        foreign: The name of each foreign source, whether it is near, and its predictions.
        settings: The configuration, from which each uncertainty takes its keys.
    """

    def measured(shown: Shown) -> dict[str, npt.NDArray[np.float64]]:
        return {
            f"{prefix}{name}": values
            for prefix, predictions in shown.items()
            for name, values in measure_all(predictions, settings).items()
        }

    inside = measured(test)
    score = DENSITY if DENSITY in inside else "predictive-entropy"
    sources: dict[str, Any] = {}
    for name, near, shown in foreign:
        outside = measured(shown)
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
    """Return all metrics of ``run.json:foreign``, such as ``ood-NAME-UNCERTAINTY-auroc``."""
    return {
        f"{OF_FOREIGN}{name}-{by}-{what}": float(value)
        for name, source in content["sources"].items()
        for by, found in source["uncertainties"].items()
        for what, value in found.items()
    }


def describe_foreign(content: Mapping[str, Any]) -> str:
    """Return a line with the AUROC of the run's score for each source of ``run.json:foreign``."""
    score = content["score"]
    found = (
        f"{name} ({'near' if source['near'] else 'far'}) "
        f"{source['uncertainties'][score]['auroc']:.3f}"
        for name, source in content["sources"].items()
    )
    return f"foreign images are told from test images by {score}, AUROC: {', '.join(found)}"


def detection(inside: npt.ArrayLike, foreign: npt.ArrayLike) -> dict[str, float]:
    """Return AUROC, AUPR and FPR95 of scores, of test images (N,) and foreign ones (M,).

    ``aupr`` is the average precision; ``fpr95`` the false positive rate at a true one of 95 %.

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
