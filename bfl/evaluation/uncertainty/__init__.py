"""Uncertainties of predictions, found by registration.

- ``predictive_entropy``: normalised entropy of the mean prediction, everything in one number.
- ``aleatoric`` and ``epistemic``: its split by Kwon et al. into noise of the data and of the model.
- ``expected_entropy`` and ``mutual_information``: the split of that entropy, in its unit.
- ``retention``: the value of a metric on the examples that remain when the uncertain ones go.
"""

from bfl.evaluation.uncertainty.base import (
    Uncertainty,
    check_measures,
    mean_uncertainties,
    measure_all,
    uncertainties,
)
from bfl.evaluation.uncertainty.retention import RetentionCurve, retention_curve

__all__ = [
    "RetentionCurve",
    "Uncertainty",
    "check_measures",
    "mean_uncertainties",
    "measure_all",
    "retention_curve",
    "uncertainties",
]
