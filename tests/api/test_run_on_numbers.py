"""A regression run on scikit-learn's diabetes, from the data frame to predictions."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

import bfl
from bfl.configuration import resolve
from bfl.errors import BflError, ConfigurationError


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn_figures")
def test_numbers_are_predicted_with_their_uncertainty(tmp_path: Path) -> None:
    x, y = load_diabetes(return_X_y=True, as_frame=True)
    frame = x.assign(progression=y)
    result = bfl.run(
        data=frame,
        task="regression",
        target="progression",
        model="mlp",
        clients=3,
        rounds=2,
        local_epochs=30,
        prior_scale=0.1,
        mc_samples=10,
        backend="serial",
        output_dir=str(tmp_path),
    )
    found = result.metrics
    # A line through all of the data leaves 54; the mean alone 77.
    assert found["root-mean-squared-error"] < 70
    assert 0.6 < found["interval-coverage"] <= 1.0
    assert found["mean-epistemic"] > 0
    assert {"negative-log-likelihood", "continuous-ranked-probability-score"} <= found.keys()
    assert "accuracy" not in found
    assert "retention-curves" in result.figures
    predicted = result.predict_numbers(frame)
    assert predicted.samples == 10
    assert np.corrcoef(predicted.mean, y)[0, 1] > 0.5
    np.testing.assert_allclose(
        predicted.uncertainty["predictive-variance"], predicted.aleatoric + predicted.epistemic
    )
    again = result.evaluate(result.configuration["dataset"])["metrics"]
    assert again["root-mean-squared-error"] == found["root-mean-squared-error"]
    with pytest.raises(BflError, match="predict_numbers"):
        result.predict(frame)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("closing", "bayesian-head"),
        ("evaluated-by", "clients"),
        ("server-data", "held-back"),
        ("corruptions", "noise"),
        ("predictive", "ensemble"),
        ("weighting", "accuracy"),
    ],
)
def test_what_is_for_classes_is_refused(key: str, value: str) -> None:
    keys = {"task": "regression", "dataset": "table:any.csv", key: value}
    with pytest.raises(ConfigurationError, match=f"task is 'regression' and {key} is '{value}'"):
        resolve(keys, check_data=False)


def test_a_metric_of_numbers_is_none_of_a_classifier() -> None:
    with pytest.raises(ConfigurationError, match="root-mean-squared-error"):
        resolve({"best-metric": "root-mean-squared-error", "server-data": "held-back"})


def test_numbers_of_images_are_refused() -> None:
    with pytest.raises(BflError, match="task is 'regression' and dataset is 'digits'"):
        bfl.run(task="regression", backend="serial", clients=2)
