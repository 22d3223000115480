"""Predictions from Monte Carlo samples of a classifier's probabilities.

- ``statistics``: streaming sums over the samples, so that memory is N·C and never M·N·C.
- ``predictions``: the result, from which every uncertainty and metric is computed.
"""

from bfl.evaluation.prediction.predictions import Predictions, PredictionStatistics

__all__ = ["PredictionStatistics", "Predictions"]
