"""Streaming statistics against the full (M, N, C) array."""

import doctest
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import log_softmax, logsumexp
from scipy.special import softmax as softmax_over

from bfl.evaluation.prediction import PredictionStatistics, predictions

softmax = partial(softmax_over, axis=-1)


def random_samples(seed, samples=7, examples=11, classes=4, scale=3.0):
    return softmax(np.random.default_rng(seed).normal(size=(samples, examples, classes)) * scale)


def of_logits(*samples):
    statistics = PredictionStatistics()
    for sample in samples:
        statistics.add_logits(sample)
    return statistics.result()


def whole_array(samples):
    """Every statistic from the (M, N, C) array, as the formulas stand in the paper."""
    mean = samples.mean(axis=0)
    logarithm = np.log(np.where(samples > 0, samples, 1.0))
    return {
        "mean_probability": mean,
        "expected_entropy": -(samples * logarithm).sum(axis=2).mean(axis=0)
        / np.log(samples.shape[2]),
        "aleatoric": 1.0 - (samples**2).sum(axis=2).mean(axis=0),
        "epistemic": ((samples - mean) ** 2).sum(axis=2).mean(axis=0),
    }


def assert_equal_statistics(predictions, expected, tolerance=1e-13):
    for name, value in expected.items():
        np.testing.assert_allclose(
            getattr(predictions, name), value, rtol=0, atol=tolerance, err_msg=name
        )


probability_arrays = st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(2, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.floats(-60, 60, width=32)).map(softmax)
)


@settings(max_examples=60, deadline=None)
@given(probability_arrays)
def test_streaming_equals_the_whole_array(samples):
    before = samples.copy()
    result = PredictionStatistics.of(samples).result()
    np.testing.assert_array_equal(samples, before)
    assert result.samples == len(samples)
    assert_equal_statistics(result, whole_array(samples))
    assert (result.epistemic >= 0).all()
    assert (result.aleatoric >= 0).all()
    total = 1.0 - (result.mean_probability**2).sum(axis=1)
    np.testing.assert_allclose(result.aleatoric + result.epistemic, total, rtol=0, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    arrays(np.float32, (3, 5), elements=st.floats(-30, 30, width=32)).map(softmax),
    st.integers(1, 40),
)
def test_identical_samples_leave_no_epistemic_uncertainty(sample, count):
    result = PredictionStatistics.of([sample] * count).result()
    once = PredictionStatistics.of([sample]).result()
    assert (result.epistemic == 0.0).all()
    for name in ("mean_probability", "log_mean_probability", "expected_entropy", "aleatoric"):
        np.testing.assert_array_equal(getattr(result, name), getattr(once, name))
    with np.errstate(divide="ignore"):
        logits = np.maximum(np.log(sample), -500.0)
    once, often = of_logits(logits), of_logits(*[logits] * count)
    np.testing.assert_array_equal(often.log_mean_probability, once.log_mean_probability)
    assert (often.epistemic == 0).all()


def test_epistemic_of_nearly_identical_samples_does_not_cancel():
    sample = np.array([[0.7, 0.2, 0.1]])
    step = np.array([[1e-9, -1e-9, 0.0]])
    result = PredictionStatistics.of([sample - step, sample + step]).result()
    assert result.epistemic[0] == pytest.approx(2e-18, rel=1e-6, abs=0)


def test_aleatoric_of_a_nearly_certain_prediction_keeps_its_digits():
    # Of the exact 2e-18 a p of 1 - 1e-18 cannot hold its half; 1 - sum p^2 would give 0.
    result = PredictionStatistics.of([[[1.0, 1e-18]]]).result()
    assert result.aleatoric[0] == pytest.approx(1e-18, rel=1e-6, abs=0)


@settings(max_examples=60, deadline=None)
@given(arrays(np.float64, (5, 3, 4), elements=st.floats(-2000, 2000, width=32)))
def test_logits_are_summed_in_the_logarithm(logits):
    """Against SciPy over the whole array."""
    result = of_logits(*logits)
    logarithms = log_softmax(logits, axis=2)
    expected = logsumexp(logarithms, axis=0) - np.log(5)
    np.testing.assert_allclose(result.log_mean_probability, expected, rtol=1e-12, atol=1e-12)
    assert_equal_statistics(result, whole_array(np.exp(logarithms)), 1e-12)
    energy = -logsumexp(logits, axis=2).mean(axis=0)
    np.testing.assert_allclose(result.scores["energy"], energy, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(result.scores["max-logit"], -logits.max(axis=2).mean(axis=0))


@pytest.mark.parametrize(
    "logits", [[1.0, 2.0], [[1.0]], np.zeros((0, 3)), [[np.nan, 0.5]], [[np.inf, -np.inf]]]
)
def test_what_is_no_logit_is_refused_and_not_taken_in(logits):
    with pytest.raises(ValueError, match=r"shape|not finite"):
        PredictionStatistics().add_logits(logits)
    statistics = PredictionStatistics.of(random_samples(9))
    early = statistics.result()
    for add in (statistics.add, statistics.add_logits):
        with pytest.raises(ValueError, match=r"\(11, 4\)"):
            add(random_samples(9, examples=12)[0])
    for wrong in ([np.nan, 0, 0, 1], [1.1, -0.1, 0, 0], [0.5, 0.6, 0, 0], [np.inf, 0, 0, 0]):
        sample = random_samples(6)[3]
        sample[2] = wrong
        with pytest.raises(ValueError, match="1 of 11 rows"):
            statistics.add(sample)
    statistics.add(random_samples(6)[3])
    # A result does not change with later samples.
    assert_equal_statistics(early, whole_array(random_samples(9)))
    assert (early.samples, statistics.samples) == (7, 8)
    with pytest.raises(ValueError, match="no sample"):
        PredictionStatistics().result()


def test_predictions_predict_the_lowest_of_tied_classes():
    result = PredictionStatistics.of([[[0.2, 0.4, 0.4], [0.1, 0.2, 0.7]]]).result()
    assert result.predicted.tolist() == [1, 2]
    assert result.predicted.dtype == np.int64
    np.testing.assert_allclose(result.confidence, [0.4, 0.7])
    assert (result.examples, result.classes) == (2, 3)


def test_docstring_examples():
    assert doctest.testmod(predictions).failed == 0
