"""Metrics of predictions, found by registration.

Every metric is invariant to the order of the data to the last bit: sums over examples are
correctly rounded (``math.fsum``).
"""

from bfl.evaluation.metrics.base import (
    NOT_FINITE,
    ExampleMetric,
    Metric,
    checked_labels,
    count_not_finite,
    evaluate,
    exact_mean,
    higher_is_better,
    metric_names,
    metrics,
    metrics_by_task,
)

__all__ = [
    "NOT_FINITE",
    "ExampleMetric",
    "Metric",
    "checked_labels",
    "count_not_finite",
    "evaluate",
    "exact_mean",
    "higher_is_better",
    "metric_names",
    "metrics",
    "metrics_by_task",
]
