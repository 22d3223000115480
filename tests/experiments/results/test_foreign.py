"""Numbers of foreign images: of every uncertainty, with and without the closing round."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from bfl.evaluation.prediction import Predictions, PredictionStatistics
from bfl.evaluation.uncertainty import measure_all
from bfl.experiments.results.foreign import BEFORE_CLOSING, told_of_foreign, write_foreign
from bfl.experiments.results.run_folder import FOREIGN, RunFolder
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.results import read_run

RANDOM = np.random.default_rng(0)


def predictions(sharpness: float, scores: dict[str, np.ndarray] | None = None) -> Predictions:
    draws = RANDOM.dirichlet(np.ones(4) / sharpness, size=(3, 50))
    return replace(PredictionStatistics.of(draws).result(), scores=scores or {})


def test_a_run_keeps_every_uncertainty_before_and_after_its_closing(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "run", {"rounds": 1}, {})
    density = {"feature-density": np.arange(50.0)}, {"feature-density": np.arange(25.0, 75.0)}
    test = {"": predictions(2.0, density[0]), BEFORE_CLOSING: predictions(9.0)}
    rotated = {"": predictions(1.0, density[1]), BEFORE_CLOSING: predictions(0.1)}
    headline = write_foreign(folder, test, [("rotated", True, rotated)], {})
    folder.write_metrics(headline)
    line = told_of_foreign(folder.read_json(FOREIGN))
    for word in ("feature-density", "rotated (near)", f"{headline['ood-rotated-auroc']:.3f}"):
        assert word in line
    found = read_run(folder)[0]

    def area(by: str, prefix: str) -> float:
        inside, outside = (measure_all(each[prefix])[by] for each in (test, rotated))
        return float(roc_auc_score([0] * 50 + [1] * 50, [*inside, *outside]))

    for by, prefix in [
        ("feature-density", ""),
        ("mutual-information", ""),
        ("mutual-information", BEFORE_CLOSING),
        ("predictive-entropy", BEFORE_CLOSING),
    ]:
        name = f"ood-rotated-{prefix}{by}-auroc"
        assert found[name] == pytest.approx(area(by, prefix), abs=1e-12)
        assert Column(metric=name).higher_is_better is True
    assert headline["ood-rotated-auroc"] == found["ood-rotated-feature-density-auroc"]
    assert f"ood-rotated-{BEFORE_CLOSING}feature-density-auroc" not in found


@pytest.mark.parametrize(
    ("metric", "up"),
    [
        ("ood-mnist-fpr95", False),
        ("before-closing-accuracy", True),
        ("before-closing-negative-log-likelihood", False),
    ],
)
def test_numbers_of_closings_have_a_better_side(metric: str, up: bool) -> None:
    assert Column(metric=metric).higher_is_better is up
