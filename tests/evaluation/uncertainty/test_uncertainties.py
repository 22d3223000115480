"""The contract of every registered uncertainty, then each against its formula."""

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import entropy as scipy_entropy

from bfl.errors import ConfigurationError
from bfl.evaluation.metrics import metrics
from bfl.evaluation.prediction import PredictionStatistics
from bfl.evaluation.uncertainty import check_measures, uncertainties

SAMPLES = softmax(np.random.default_rng(0).normal(size=(8, 40, 5)) * 3.0, axis=2)
# The ends of the scale: certain and right at one, uniform, and certain samples that contradict.
CERTAIN = np.tile([1.0, 0.0, 0.0, 0.0, 0.0], (5, 1, 1))
UNIFORM = np.full((5, 1, 5), 0.2)
CONTRADICTING = np.eye(5)[:, None, :]
LARGEST = {
    "predictive-entropy": 1.0,
    "aleatoric": 0.8,
    "epistemic": 0.8,
    "expected-entropy": 1.0,
    "mutual-information": 1.0,
}


def measure(name, samples):
    return uncertainties.create(name).measure(PredictionStatistics.of(samples).result())


every = pytest.mark.parametrize("name", uncertainties.names())


def test_the_papers_uncertainties_are_registered():
    assert set(LARGEST) <= set(uncertainties.names())
    by = {cls.name for cls in uncertainties.classes() if cls.retention}
    assert {"predictive-entropy", "aleatoric", "epistemic"} <= by


@every
def test_no_order_matters(name):
    """Neither that of examples, nor of classes, nor of samples."""
    random, value = np.random.default_rng(1), measure(name, SAMPLES)
    examples, classes = random.permutation(40), random.permutation(5)
    for samples, expected in (
        (SAMPLES[:, examples], value[examples]),
        (SAMPLES[:, :, classes], value),
        (SAMPLES[::-1], value),
    ):
        np.testing.assert_allclose(measure(name, samples), expected, rtol=0, atol=1e-12)


@every
def test_shape_and_range(name):
    extremes = np.concatenate([SAMPLES[:5], CERTAIN, UNIFORM, CONTRADICTING], axis=1)
    value = measure(name, extremes)
    largest = LARGEST.get(name, np.inf)
    assert (value.shape, value.dtype) == ((extremes.shape[1],), np.float64)
    assert np.isfinite(value).all()
    assert (value >= 0).all()
    assert (value <= largest + 1e-12).all()
    if name in LARGEST:  # an uncertainty added later states its range in a test of its own
        assert value.max() == pytest.approx(largest, abs=1e-12)


def test_normalised_predictive_entropy():
    expected = scipy_entropy(SAMPLES.mean(axis=0), axis=1) / np.log(5)
    np.testing.assert_allclose(measure("predictive-entropy", SAMPLES), expected, atol=1e-13)
    for classes in range(2, 40):
        uniform = np.full((1, 1, classes), 1.0 / classes)
        value = float(measure("predictive-entropy", uniform)[0])
        assert value <= 1.0
        assert value == pytest.approx(1.0, abs=1e-14)


def test_entropy_split():
    """In one unit, the share of log C: the parts add up, also as means over the examples."""
    expected = scipy_entropy(SAMPLES, axis=2).mean(axis=0) / np.log(5)
    np.testing.assert_allclose(measure("expected-entropy", SAMPLES), expected, atol=1e-13)
    whole = measure("predictive-entropy", SAMPLES)
    parts = measure("expected-entropy", SAMPLES) + measure("mutual-information", SAMPLES)
    np.testing.assert_allclose(parts, whole, atol=1e-12)
    # Mutual information is the mean divergence from the mean.
    ratio = np.log(SAMPLES / SAMPLES.mean(axis=0))
    divergence = (SAMPLES * ratio).sum(axis=2).mean(axis=0) / np.log(5)
    np.testing.assert_allclose(measure("mutual-information", SAMPLES), divergence, atol=1e-12)


def test_mutual_information_of_nearly_identical_samples_is_not_negative():
    random = np.random.default_rng(3)
    noise = random.normal(size=(3, 500, 5)) * 1e-15
    samples = softmax(random.normal(size=(500, 5)) + noise, axis=2)
    predictions = PredictionStatistics.of(samples).result()
    mean = predictions.mean_probability
    rounded = -(mean * np.log(mean)).sum(axis=1) / np.log(5) - predictions.expected_entropy
    assert rounded.min() < 0  # or this shows nothing
    assert uncertainties.create("mutual-information").measure(predictions).min() == 0.0


@pytest.mark.parametrize("name", ["epistemic", "mutual-information"])
@pytest.mark.parametrize("count", [1, 3, 10, 16])
def test_model_uncertainty_of_identical_samples_is_exactly_zero(name, count):
    assert (measure(name, [SAMPLES[0]] * count) == 0.0).all()


@pytest.mark.parametrize(("registry", "call"), [(metrics, "compute"), (uncertainties, "measure")])
def test_a_measure_that_raises_is_refused_by_name(registry, call, monkeypatch):
    check_measures(3)
    monkeypatch.setattr(registry.classes()[0], call, lambda *_: 1 / 0)
    with pytest.raises(ConfigurationError, match=f"'{registry.names()[0]}' of .*ZeroDivision"):
        check_measures(3)
