"""How uncertain a prediction is: one measure per file, found by registration.

- ``predictive_entropy``: normalised entropy of the mean prediction, everything in one number.
- ``aleatoric`` and ``epistemic``: its split by Kwon et al. into noise of the data and of the model.
- ``expected_entropy`` and ``mutual_information``: the same split in nats.
- ``retention``: the value of a metric on the examples that remain when the uncertain ones go.
"""

from bfl.uncertainty.base import Uncertainty, measure_all, uncertainties
from bfl.uncertainty.retention import RetentionCurve, retention_curve

__all__ = ["RetentionCurve", "Uncertainty", "measure_all", "retention_curve", "uncertainties"]
