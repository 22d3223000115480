"""The table's numbers, against numbers computed by hand, and its formats; foreign images."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError
from sklearn.metrics import roc_auc_score
from small_study import STUDY, finish_run, made_study, opened

from bfl.evaluation.prediction import Predictions, PredictionStatistics
from bfl.evaluation.regression import ERROR
from bfl.evaluation.uncertainty import measure_all
from bfl.experiments.results.run_folder import ENVIRONMENT, FOREIGN, RunFolder
from bfl.experiments.results.summary import BEFORE_CLOSING, describe_foreign, write_foreign
from bfl.experiments.studies.columns import Column, numbers_of_curves
from bfl.experiments.studies.results import StudyFolder, gather, read_run, write_results
from bfl.experiments.studies.study import Run
from bfl.experiments.studies.table import (
    StudyTable,
    markdown,
    mean_and_spread,
    number_as_text,
    study_table,
)

ACCURACIES = {
    "flipout-ws_iid_seed-0": (0.90, 0.45),
    "flipout-ws_iid_seed-1": (0.94, 0.47),
    "flipout-nwa_iid_seed-0": (0.5, 1.0),
}
COLUMNS = STUDY.split("[[columns]]")[0]


def make(folder: StudyFolder, run: Run) -> None:
    """Finish three runs, begin one; one has failed."""
    if run.name in ACCURACIES:
        accuracy, likelihood = ACCURACIES[run.name]
        finish_run(folder, run, accuracy=accuracy, negative_log_likelihood=likelihood)
    if run.name == "flipout-ws_dirichlet-0.5_seed-0":
        finish_run(folder, run)
    folder.write("runs/flipout-nwa_dirichlet-0.5_seed-0/log.txt", b"failed: no luck\n")


def test_means_spreads_and_differences(tmp_path: Path) -> None:
    found = made_study(tmp_path, make)
    ws, ws_dirichlet, nwa, nwa_dirichlet = found.lines.to_dict("records")
    # 90 and 94: mean 92, deviations −2 and 2, sample variance 8.
    assert ws["accuracy"] == pytest.approx(92.0)
    assert ws["accuracy_spread"] == pytest.approx(8**0.5)
    assert (ws["accuracy_published"], ws["accuracy_published_spread"]) == (90.5, 1.0)
    assert ws["accuracy_difference"] == pytest.approx(1.5)
    assert ws["negative-log-likelihood"] == pytest.approx(0.46)
    assert ws["negative-log-likelihood_published_spread"] is None
    assert (ws["runs_done"], ws["runs"], ws["state"]) == (2, 2, "")
    assert (nwa["runs_done"], nwa["runs"], nwa["state"]) == (1, 2, "missing")
    assert nwa["accuracy_spread"] is None, "one run has no spread"
    assert nwa["negative-log-likelihood_difference"] is None, "not published"
    assert ws_dirichlet["state"] == "begun, round 2 of 4, missing"
    assert nwa_dirichlet["state"] == "failed, missing"
    # A part of the runs makes a part of the table.
    part = study_table(opened(StudyFolder(tmp_path / "small"), ["ws_iid_seed-1"])).lines
    assert part[["runs_done", "runs"]].to_numpy().tolist() == [[1, 1]]
    assert part["accuracy"][0] == pytest.approx(94.0)


def test_a_standard_error_is_the_deviation_over_the_root_of_n(tmp_path: Path) -> None:
    found = made_study(tmp_path, make, 'spread = "standard-error"\n' + STUDY)
    assert found.lines["accuracy_spread"][0] == pytest.approx(2.0)


def test_markdown_has_ours_beside_the_published(tmp_path: Path) -> None:
    header, rule, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in markdown(made_study(tmp_path, make)).splitlines()
        if line.startswith("|")
    ]
    assert header[:5] == ["model", "rule", "partition", "runs", "accuracy (%)"]
    assert rule[2:4] == ["---", "---:"]
    assert rows[0][3:] == [
        *("2 of 2", "92.00 ± 2.83", "90.50 ± 1.00", "+1.50", "0.460 ± 0.014", "0.300", "+0.160")
    ]
    assert rows[2][3:] == ["1 of 2", "50.00", "70.00 ± 3.00", "-20.00", "1.000", "–", "–"]
    assert rows[3][3:] == [
        *("0 of 2", "failed, missing", "60.00 ± 4.00", "–", "failed, missing", "1.200", "–")
    ]


def of_one_column(folder: Path, numbers: list[float], metric: str, images: int = 0) -> StudyTable:
    """Return the table of a study of one line whose seeds have these numbers."""
    text = f'title = "Small"\n[base]\nclients = 3\n[axes]\nseed = {list(range(len(numbers)))}\n'
    text += f'[[columns]]\nmetric = "{metric}"\n'

    def finish(place: StudyFolder, run: Run) -> None:
        value = numbers[int(run.labels["seed"])]
        finish_run(place, run, **{metric.replace("-", "_"): value})

    made_study(folder, finish, text)
    study = StudyFolder(folder / "small")
    results = gather(opened(study))
    results.frame["test-images"] = float(images or "nan")
    write_results(study, results)
    for run in study.runs.iterdir():
        (run / "metrics.json").unlink()
    return study_table(opened(study))


def test_numbers_are_shown_as_large_as_they_are() -> None:
    for numbers, shown in (
        ([8e-9, 7e-9, 6e-9], "7.0e-09 ± 1.0e-09"),
        ([7e-9, 7e-9], "7.0e-09 ± 0.000"),
        ([0.1, 0.1, 0.1], "0.100 ± 0.000"),
        ([0.5, 0.5004], "0.500 ± 2.8e-04"),
        ([-0.3, -0.35], "-0.325 ± 0.035"),
        ([math.inf, 1.0], "inf"),
        ([math.nan, 1.0], "nan"),
    ):
        mean, spread = mean_and_spread(numbers, "standard-deviation")
        assert number_as_text(mean, 3, spread) == shown
    found = [number_as_text(n, 3, sign="+") for n in (0.0004, -0.0004, 0.5, 0.0, 1e-16)]
    assert found == ["+4.0e-04", "-4.0e-04", "+0.500", "+0.000", "+0.000"]


def test_a_share_has_the_binomial_deviation_of_one_run(tmp_path: Path) -> None:
    share = 697 / 720
    found = of_one_column(tmp_path / "a", [347 / 360, 350 / 360], "accuracy", 360).lines
    assert found["accuracy_by_images"][0] == pytest.approx((share * (1 - share) / 360) ** 0.5)
    assert of_one_column(tmp_path / "b", [0.5], "accuracy").lines["accuracy_by_images"][0] is None
    metric = "negative-log-likelihood"
    found = of_one_column(tmp_path / "c", [0.5, 0.75], metric, 360).lines
    assert found[f"{metric}_by_images"][0] is None


@pytest.mark.parametrize("known", ["git-not-found", "git-changed"])
def test_what_has_to_be_known_of_runs_is_noted(known: str, tmp_path: Path) -> None:
    def finish(place: StudyFolder, run: Run) -> None:
        first = run.name == "flipout-ws_iid_seed-0"
        made = finish_run(place, run, [{"failures": 2}] if first else [], accuracy=0.5)
        made.write_json(ENVIRONMENT, {known: True} if first else {})

    notes = made_study(tmp_path, finish, COLUMNS).notes
    assert "1 of 8 runs cannot be made again" in notes[-1]
    assert notes[-2].endswith("over all rounds: flipout-ws_iid_seed-0 (2 failures).")


POINTS = {
    "accuracy": {2: 0.3, 4: 0.6, 6: 0.5},
    "negative-log-likelihood": {2: 2.0, 4: 1.5, 6: math.nan},
    "expected-calibration-error": {6: math.nan},
    "log-precision-spread": {2: 0.1, 4: 0.3},
    "ensemble-accuracy": {2: 0.4},
    ERROR: {2: 4.0, 4: 3.0},
}
CURVES = pd.DataFrame(
    [("run", n, metric, value) for metric, of in POINTS.items() for n, value in of.items()],
    columns=["run", "round", "metric", "value"],
)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("best-accuracy", 0.6),
        ("best-negative-log-likelihood", 1.5),
        ("best-brier-score", None),
        ("best-expected-calibration-error", math.nan),
        (f"best-{ERROR}", 3.0),
        (f"rounds-to-{ERROR}-3.5", 4),
        (f"{ERROR}-at-round-2", 4.0),
        ("accuracy-at-round-4", 0.6),
        ("ensemble-accuracy-at-round-2", 0.4),
        ("ensemble-accuracy-at-round-4", None),
        ("rounds-to-accuracy-0.3", 2),
        ("rounds-to-accuracy-0.31", 4),
        ("rounds-to-accuracy-0.61", math.inf),
        ("rounds-to-negative-log-likelihood-1.9", 4),
        ("mean-log-precision-spread", 0.2),
        ("mean-distance-from-average", None),
    ],
)
def test_numbers_of_the_rounds_that_were_evaluated(name: str, number: float | None) -> None:
    found = numbers_of_curves(name, CURVES)
    expected = {} if number is None else {"run": number}
    assert found.to_dict() == pytest.approx(expected, nan_ok=True)


def test_columns_know_their_names_and_which_way_is_up() -> None:
    up = {
        "best-accuracy": True,
        "best-negative-log-likelihood": False,
        "rounds-to-accuracy-0.5": False,
        "rounds-to-negative-log-likelihood-1": False,
        "mean-log-precision-spread": None,
        "accuracy-at-round-10": True,
        "ensemble-negative-log-likelihood-at-round-10": False,
        "client-11-best-better-accuracy": True,
        "ood-rotated-epistemic-fpr95": False,
        "ood-mnist-fpr95": False,
        "before-closing-accuracy": True,
        "before-closing-negative-log-likelihood": False,
    }
    assert {name: Column(metric=name).higher_is_better for name in up} == up
    wrong = ("rounds-to-acuracy-0.5", "rounds-to-accuracy-", "best-acuracy", "acuracy-at-round-10")
    for name in (*wrong, "accuracy-at-round-0", "round-at-round-5", "client-1-best-acuracy"):
        with pytest.raises(ValidationError):
            Column(metric=name)


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
    line = describe_foreign(folder.read_json(FOREIGN))
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
