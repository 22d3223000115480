"""A regression run on scikit-learn's diabetes, from the data frame to predictions."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes

import bfl
from bfl.closing.closed import UNLIKE
from bfl.commands.main import main
from bfl.configuration import resolve
from bfl.errors import BflError, ConfigurationError
from bfl.experiments.results.report import run_report
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.simulation import DEFAULT_CLOSING_OF_NUMBERS


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn_figures")
def test_numbers_are_predicted_with_their_uncertainty(tmp_path: Path) -> None:
    x, y = load_diabetes(return_X_y=True, as_frame=True)
    frame = x.assign(progression=y, site=np.repeat(["east", "north", "west"], [120, 150, 172]))
    result = bfl.run(
        data=frame,
        task="regression",
        target="progression",
        columns_left_out="site",
        partition="column:site",
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
    assert result.configuration["closing"] == DEFAULT_CLOSING_OF_NUMBERS
    assert found["held-back-nll"] <= found["held-back-nll-before"]
    assert (result.folder / "figures" / "predicted-numbers.png").is_file()
    page = run_report(RunFolder(result.folder))
    assert [page.count(f"<td>{site}</td>") for site in ("east", "north", "west")] == [1, 1, 1]
    predicted = result.predict_numbers(frame)
    assert predicted.samples in (10, 64)  # draws of the network, or the closing's mixture
    assert np.corrcoef(predicted.mean, y)[0, 1] > 0.5
    np.testing.assert_allclose(
        predicted.uncertainty["predictive-variance"], predicted.aleatoric + predicted.epistemic
    )
    again = result.evaluate(result.configuration["dataset"])["metrics"]
    assert again["root-mean-squared-error"] == found["root-mean-squared-error"]
    strange = result.predict_numbers(frame.assign(age=10.0).head(3))
    assert all(UNLIKE in each and each[0].startswith("age 10") for each in strange.warnings)
    assert strange.deviation.min() > predicted.deviation.max()
    errors = predicted.mean - y
    all_rows = result.evaluate(frame.drop(columns="progression"), y)["metrics"]
    assert all_rows["root-mean-squared-error"] == pytest.approx(np.sqrt((errors**2).mean()))
    assert main(["predict", str(result.folder), "--data", "images.npz"]) == 2
    with pytest.raises(BflError, match="predict_numbers"):
        result.predict(frame)
    inside = (predicted.interval[0] <= y) & (y <= predicted.interval[1])
    assert all_rows["interval-coverage"] == inside.mean()
    _check_files(result, frame, tmp_path)


def _check_files(result: bfl.Result, frame: pd.DataFrame, folder: Path) -> None:
    """Check what the command writes, of all rows, against what Python gives."""
    numbers = [f"{n:04d}" for n in range(len(frame))]
    named = frame.assign(mean=numbers, row=7)
    named.to_csv(folder / "new.csv", index=False)
    command = ["predict", str(result.folder), "--data", str(folder / "new.csv"), "--output"]
    assert main([*command, str(folder / "a.csv")]) == 0
    predicted = result.predict_numbers(frame)
    written = pd.read_csv(folder / "a.csv", dtype={"mean (given)": str})
    right = {"lower": predicted.interval[0], "upper": predicted.interval[1]}
    for name, values in {**right, "mean": predicted.mean}.items():
        np.testing.assert_allclose(written[name], values, rtol=1e-6)
    assert written["mean (given)"].tolist() == numbers
    assert written["site"].tolist() == frame["site"].tolist()
    assert written["row"].tolist() == list(range(1, len(frame) + 1))
    variance = predicted.uncertainty["predictive-variance"]
    np.testing.assert_allclose(written["deviation"] ** 2, variance, rtol=1e-6)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("closing", "bayesian-head"), ("evaluated-by", "clients"), ("predictive", "ensemble")),
        *(("weighting", "accuracy"), ("weighting", "q-fair")),
    ],
)
def test_what_is_for_classes_is_refused(key: str, value: str) -> None:
    keys = {"task": "regression", "dataset": "table:any.csv", key: value}
    with pytest.raises(ConfigurationError, match=f"task is 'regression', and {key} is '{value}'"):
        resolve(keys, check_data=False)
