"""Ranges of the numbers that clients measure of themselves and of their models."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping

from bfl.evaluation.metrics import Metric, metrics
from bfl.federation.client_metrics import (
    AT_LEAST_0,
    BETTER,
    MEME,
    OWN_TEST,
    PERSONAL,
    RETENTION_AREA,
)


def metrics_of_models() -> dict[str, type[Metric]]:
    """Return what clients may say of their models, and the metric that it is, or the mean of."""
    accuracy = metrics.get("accuracy")
    of_models = {
        f"{model}{name}": metrics.get(name)
        for model in (MEME, PERSONAL)
        for name in metrics.names()
    }
    areas = {f"{model}{RETENTION_AREA}": accuracy for model in (MEME, PERSONAL)}
    return {**of_models, **areas, BETTER: accuracy}


@functools.lru_cache(maxsize=1)
def _named(registered: tuple[type[Metric], ...]) -> dict[str, type[Metric]]:
    """Return the names that are a metric, of whatever model and measured by whomever.

    Args:
        registered: All metrics: asked for each client's update, their names are made once.
    """
    plain = {f"{of}{metric.name}": metric for of in ("", OWN_TEST) for metric in registered}
    return {**metrics_of_models(), **plain}


def impossible_numbers(measured: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield those numbers that a client cannot have measured, with their names.

    A metric has its bounds, by whatever model; times, sizes and numbers of examples are at least 0;
    the better of two accuracies is the greater of those beside it. Nothing is known of a number of
    another name.

    Args:
        measured: What a client has sent, under its own names.
    """
    known = _named(metrics.classes())
    for name, value in measured.items():
        bounded = name not in known or known[name].possible(value)
        too_little = name in AT_LEAST_0 and not 0.0 <= value < math.inf
        if not bounded or too_little or (name == BETTER and value != _better(measured)):
            yield name, value


def _better(measured: Mapping[str, float]) -> float | None:
    """Return the greater of the accuracies that a client has sent of its models; None without."""
    said = [
        measured[name] for model in (MEME, PERSONAL) if (name := f"{model}accuracy") in measured
    ]
    return max(said, default=None)
