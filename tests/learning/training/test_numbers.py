"""The loss of labels that are numbers, against SciPy's Gaussian."""

from typing import Any

import numpy as np
from scipy import stats

from bfl.keras import tf
from bfl.learning.objectives import Step


def test_numbers_have_gaussian_noise() -> None:
    generator = np.random.default_rng(0)
    outputs = generator.normal(size=(6, 2)).astype(np.float32)
    numbers = generator.normal(size=6).astype(np.float32)
    weights = np.array([1, 1, 1, 1, 0, 0], np.float32)
    network: Any = None
    step = Step(network, tf.constant(outputs), tf.constant(numbers), tf.constant(weights))
    deviations = np.sqrt(np.log1p(np.exp(outputs[:, 1])) + 1e-6)
    each = -stats.norm.logpdf(numbers, outputs[:, 0], deviations)
    np.testing.assert_allclose(step.negative_log_likelihood, each[:4].sum(), rtol=1e-5)
