"""Metrics of test images that are corrupted more and more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy.typing as npt

from bfl.data.corruptions import STRENGTHS, corrupted
from bfl.data.datasets.base import Images
from bfl.evaluation.metrics import metrics
from bfl.evaluation.prediction import Predictions

METRICS = ("accuracy", "negative-log-likelihood", "expected-calibration-error")


def by_strength(
    names: Iterable[str],
    images: Images,
    labels: npt.ArrayLike,
    predict: Callable[[Images], Predictions],
    settings: Mapping[str, Any],
) -> dict[str, dict[str, list[float]]]:
    """Return accuracy, NLL and calibration error of each corruption at strengths 0 to 5.

    Args:
        names: The corruptions.
        images: uint8 (N, H, W, C) images.
        labels: (N,) their classes.
        predict: Predicts images.
        settings: The configuration, of which each metric takes its own keys.

    Returns:
        ``found[corruption][metric]``, a number for each strength; strength 0 are the images
        themselves. It is the content of ``corruptions.json``.
    """
    chosen = {name: metrics.create(name, settings) for name in METRICS}

    def evaluated(shown: Images) -> dict[str, float]:
        predictions = predict(shown)
        return {name: metric.compute(predictions, labels) for name, metric in chosen.items()}

    found: dict[str, dict[str, list[float]]] = {}
    clean: dict[str, float] = {}
    for name in names:
        clean = clean or evaluated(images)
        rows = [clean, *(evaluated(corrupted(images, name, strength)) for strength in STRENGTHS)]
        found[name] = {metric: [row[metric] for row in rows] for metric in METRICS}
    return found
