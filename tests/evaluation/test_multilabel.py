"""Predictions of several labels, against SciPy, scikit-learn and sums by hand."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import bernoulli
from sklearn.metrics import accuracy_score, average_precision_score, f1_score, hamming_loss

from bfl.errors import NotFiniteError
from bfl.evaluation.metrics import evaluate, higher_is_better, metric_names
from bfl.evaluation.multilabel import BINS, LabelPredictions, LabelStatistics
from bfl.evaluation.uncertainty import measure_all

GENERATOR = np.random.default_rng(3)
LOGITS = GENERATOR.normal(scale=2.0, size=(5, 40, 4))
TRUE = (GENERATOR.random((40, 4)) < 0.4).astype(np.float32)


def predictions(logits: np.ndarray = LOGITS) -> LabelPredictions:
    statistics = LabelStatistics()
    for sample in logits:
        statistics.add_logits(sample)
    return statistics.result()


def test_probabilities_and_entropies_are_those_of_scipy() -> None:
    found, p = predictions(), expit(LOGITS)
    np.testing.assert_allclose(found.probability, p.mean(axis=0), rtol=1e-12)
    uncertainty = measure_all(found)
    total = bernoulli(p.mean(axis=0)).entropy().mean(axis=1) / np.log(2)
    aleatoric = bernoulli(p).entropy().mean(axis=(0, 2)) / np.log(2)
    np.testing.assert_allclose(uncertainty["predictive-entropy"], total)
    np.testing.assert_allclose(uncertainty["aleatoric"], aleatoric)
    np.testing.assert_allclose(uncertainty["epistemic"], total - aleatoric, atol=1e-12)
    some = found.take(np.array([3, 1]))
    np.testing.assert_array_equal(some.probability, found.probability[[3, 1]])


def test_metrics_are_those_of_scikit_learn() -> None:
    found = evaluate(predictions(), TRUE)
    p = expit(LOGITS).mean(axis=0)
    guessed = p > 0.5
    assert found["accuracy"] == accuracy_score(TRUE, guessed)
    assert found["hamming-loss"] == hamming_loss(TRUE, guessed)
    assert found["macro-f1"] == pytest.approx(f1_score(TRUE, guessed, average="macro"))
    assert found["micro-f1"] == pytest.approx(f1_score(TRUE, guessed, average="micro"))
    assert found["mean-average-precision"] == pytest.approx(average_precision_score(TRUE, p))
    likelihood = -bernoulli(p).logpmf(TRUE.astype(int)).sum(axis=1)
    assert found["negative-log-likelihood"] == pytest.approx(likelihood.mean())
    confidence, right = np.maximum(p, 1 - p).ravel(), (guessed == TRUE).ravel()
    gaps = [
        abs((right[here] - confidence[here]).sum())
        for low in np.arange(BINS) / BINS
        if (here := (confidence >= low) & (confidence < low + 1 / BINS)).any()
    ]
    assert found["expected-calibration-error"] == pytest.approx(sum(gaps) / right.size)
    assert found.keys() <= set(metric_names())
    assert [higher_is_better(n) for n in ("macro-f1", "hamming-loss")] == [True, False]


def test_certain_logits_have_a_finite_likelihood() -> None:
    found = predictions(np.full((2, 1, 2), -1e4))
    assert evaluate(found, np.array([[1, 0]]))["negative-log-likelihood"] == pytest.approx(1e4)
    assert measure_all(found)["predictive-entropy"] == 0.0
    with pytest.raises(NotFiniteError):
        predictions(np.full((1, 1, 2), np.nan))


def test_a_label_without_an_example_has_no_average_precision() -> None:
    absent = TRUE * [1, 0, 1, 1]
    p = expit(LOGITS).mean(axis=0)
    expected = average_precision_score(absent[:, [0, 2, 3]], p[:, [0, 2, 3]])
    assert evaluate(predictions(), absent)["mean-average-precision"] == pytest.approx(expected)
    assert "mean-average-precision" not in evaluate(predictions(), TRUE * 0)
