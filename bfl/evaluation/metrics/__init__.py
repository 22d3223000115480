"""Metrics of predictions, found by registration.

Every metric is invariant to the order of the data to the last bit: sums over examples are
correctly rounded (``math.fsum``).
"""

from bfl.evaluation.metrics.base import (
    ExampleMetric,
    Metric,
    checked_labels,
    evaluate,
    exact_mean,
    higher_is_better,
    metric_names,
    metrics,
    metrics_by_task,
)

__all__ = [
    "ExampleMetric",
    "Metric",
    "checked_labels",
    "evaluate",
    "exact_mean",
    "higher_is_better",
    "metric_names",
    "metrics",
    "metrics_by_task",
]
