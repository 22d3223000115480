"""The contract of every registered metric, then each against scikit-learn or its closed form."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.metrics import accuracy_score, log_loss

from bfl.evaluation.metrics import evaluate, exact_mean, metrics
from bfl.evaluation.metrics.expected_calibration_error import ExpectedCalibrationError
from bfl.evaluation.prediction import PredictionStatistics


def predictions_of(probability):
    return PredictionStatistics.of([probability]).result()


def random_case(seed, examples=200, classes=5, scale=2.0):
    random = np.random.default_rng(seed)
    probability = softmax(random.normal(size=(examples, classes)) * scale, axis=1)
    return predictions_of(probability), random.integers(0, classes, examples)


def compute(name, predictions, labels, **given):
    return metrics.create(name, given).compute(predictions, labels)


RANGES = {
    "accuracy": (0.0, 1.0),
    "negative-log-likelihood": (0.0, np.inf),
    "brier-score": (0.0, 2.0),
    "expected-calibration-error": (0.0, 1.0),
    "area-under-risk-coverage": (0.0, 1.0),
    "risk-at-80-coverage": (0.0, 1.0),
    "coverage-at-5-risk": (0.0, 1.0),
}
PERFECT = predictions_of(np.eye(4))
every = pytest.mark.parametrize("name", metrics.names())


def test_the_papers_metrics_are_registered():
    assert set(RANGES) <= set(metrics.names())
    assert metrics.get("nll").name == "negative-log-likelihood"
    assert metrics.get("ece").name == "expected-calibration-error"


@every
def test_order_of_the_data_does_not_change_a_bit(name):
    predictions, labels = random_case(0, examples=1000)
    order = np.random.default_rng(1).permutation(1000)
    shuffled = predictions_of(predictions.mean_probability[order])
    value = compute(name, predictions, labels)
    assert isinstance(value, float)
    assert compute(name, shuffled, labels[order]) == value


@every
def test_order_of_the_classes_does_not_matter(name):
    predictions, labels = random_case(2)
    order = np.array([3, 0, 4, 1, 2])
    renamed = predictions_of(predictions.mean_probability[:, order])
    assert compute(name, renamed, np.argsort(order)[labels]) == pytest.approx(
        compute(name, predictions, labels), abs=1e-12
    )


@every
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.floats(0, 200))
def test_range(name, seed, scale):
    predictions, labels = random_case(seed, examples=6, scale=scale)
    low, high = metrics.get(name).bounds
    assert (low, high) == RANGES.get(name, (low, high))
    assert low <= compute(name, predictions, labels) <= high


@every
def test_certain_and_right_is_best(name):
    best = compute(name, PERFECT, np.arange(4))
    assert best == (1.0 if metrics.get(name).higher_is_better else 0.0)
    predictions, labels = random_case(3)
    sign = 1 if metrics.get(name).higher_is_better else -1
    assert sign * compute(name, predictions, labels) < sign * best


@every
@pytest.mark.parametrize(
    "labels",
    [
        [0, 1, 2],
        [[0], [1], [2], [3]],
        [0.0, 1.0, 2.0, 3.0],
        [True, False, True, False],
        [0, 1, 2, 4],
        [-1, 1, 2, 3],
    ],
)
def test_wrong_labels_are_refused(name, labels):
    for judge in (partial(compute, name), evaluate):
        with pytest.raises(ValueError, match="labels"):
            judge(PERFECT, labels)


def test_accuracy_and_likelihood_equal_those_of_scikit_learn():
    predictions, labels = random_case(4)
    probability = predictions.mean_probability
    accuracy = accuracy_score(labels, probability.argmax(axis=1))
    assert compute("accuracy", predictions, labels) == pytest.approx(accuracy, abs=1e-14)
    likelihood = log_loss(labels, probability, labels=np.arange(5))
    assert compute("nll", predictions, labels) == pytest.approx(likelihood, abs=1e-12)


def test_likelihood_has_no_cap():
    """Logits that differ by 1,000 cost 1,000 nats; of two samples the better one counts by half."""
    statistics = PredictionStatistics()
    statistics.add_logits(np.array([[0.0, 1000.0], [0.0, 1000.0], [0.0, 1000.0]], np.float32))
    assert compute("nll", statistics.result(), [0, 0, 0]) == pytest.approx(1000, rel=1e-12)
    assert compute("nll", statistics.result(), [1, 1, 1]) == 0
    statistics.add_logits([[0.0, 500.0], [0.0, 1000.0], [1000.0, 0.0]])
    values = metrics.create("nll").values(statistics.result(), [0, 0, 0])
    np.testing.assert_allclose(values, [500 + np.log(2), 1000, np.log(2)], rtol=1e-12)
    assert (statistics.result().mean_probability[:2, 0] < 1e-200).all(), "this shows nothing"
    # Given probabilities of 0 are those of the least number.
    assert compute("nll", PERFECT, [1, 2, 3, 0]) == pytest.approx(744.4400719)


def test_brier_score_by_hand():
    predictions, labels = random_case(5)
    expected = ((predictions.mean_probability - np.eye(5)[labels]) ** 2).sum(axis=1).mean()
    assert compute("brier", predictions, labels) == pytest.approx(expected, abs=1e-13)
    assert compute("brier", PERFECT, [1, 2, 3, 0]) == 2.0


def calibration_error_by_loop(predictions, labels, bins):
    right = predictions.predicted == labels
    error = 0.0
    for b in range(bins):
        low, high = np.linspace(0, 1, bins + 1)[b : b + 2]
        inside = (predictions.confidence > low) & (predictions.confidence <= high)
        if inside.any():
            gap = right[inside].mean() - predictions.confidence[inside].mean()
            error += inside.mean() * abs(gap)
    return error


@pytest.mark.parametrize("bins", [1, 2, 10, 15, 33])
def test_calibration_error_by_loop(bins):
    predictions, labels = random_case(6)
    value = compute("ece", predictions, labels, **{"calibration-bins": bins})
    assert value == pytest.approx(calibration_error_by_loop(predictions, labels, bins), abs=1e-12)


def test_calibration_bins_are_closed_above():
    predictions = predictions_of([[0.5, 0.5], [0.75, 0.25], [1.0, 0.0]])
    bins = ExpectedCalibrationError(calibration_bins=4).bins(predictions, [0, 0, 1])
    assert bins.count.tolist() == [0, 1, 1, 1]
    np.testing.assert_array_equal(bins.confidence, [np.nan, 0.5, 0.75, 1.0])
    np.testing.assert_array_equal(bins.accuracy, [np.nan, 1.0, 1.0, 0.0])
    assert bins.error == pytest.approx((0.5 + 0.25 + 1.0) / 3)


def risk_curve_by_loop(predictions, labels, scale):
    """Return the risk at n = 1…N, the mean over many random orders of ties."""
    wrong = predictions.predicted != labels
    confidence = np.round(predictions.confidence * scale) / scale
    risks = []
    for seed in range(1 if np.unique(confidence).size == confidence.size else 3000):
        order = np.lexsort((np.random.default_rng(seed).random(wrong.size), -confidence))
        risks.append(np.cumsum(wrong[order]) / np.arange(1, wrong.size + 1))
    return np.mean(risks, axis=0)


@pytest.mark.parametrize(("scale", "tolerance"), [(1e12, 1e-12), (10, 2e-3)], ids=["", "tied"])
def test_the_area_under_risk_by_loop(scale, tolerance):
    probability = random_case(9, classes=2)[0].mean_probability
    rounded = np.round(probability * scale) / scale
    predictions, labels = predictions_of(rounded), random_case(9, classes=2)[1]
    risk = risk_curve_by_loop(predictions, labels, scale)
    assert compute("aurc", predictions, labels) == pytest.approx(risk.mean(), abs=tolerance)


def test_points_on_the_curve_of_risk():
    """The 50 most confident of 100 are right: 2 errors of 52 are at most 5 %, 3 of 53 are not."""
    confidence = np.linspace(1.0, 0.6, 100)
    predictions = predictions_of(np.stack([confidence, 1 - confidence], axis=1))
    labels = (np.arange(100) >= 50).astype(int)
    assert compute("risk-at-80-coverage", predictions, labels) == pytest.approx(30 / 80)
    assert compute("coverage-at-5-risk", predictions, labels) == 0.52
    assert compute("coverage-at-5-risk", predictions, 1 - labels) == 0.0


def test_evaluate_gives_every_metric_in_the_order_of_names_with_its_settings():
    predictions, labels = random_case(7)
    result = evaluate(predictions, labels)
    assert tuple(result) == metrics.names()
    assert result == {name: compute(name, predictions, labels) for name in metrics.names()}
    one_bin = {"calibration-bins": 1}
    changed = evaluate(predictions, labels, {**one_bin, "strategy": "linear-pool"})
    error = "expected-calibration-error"
    assert changed[error] == compute("ece", predictions, labels, **one_bin) != result[error]


def test_exact_mean_is_correctly_rounded():
    assert exact_mean(np.array([1e100, 1.0, -1e100, 3.0])) == 1.0
