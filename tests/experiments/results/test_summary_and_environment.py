"""The numbers of metrics.json and the description of the machine."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bfl
from bfl.evaluation.metrics import evaluate
from bfl.evaluation.prediction import PredictionStatistics
from bfl.evaluation.uncertainty import retention_curve, uncertainties
from bfl.experiments.results.environment import (
    describe_commit,
    describe_environment,
    package_version,
)
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.results.summary import retention_curves, summarize, write_evaluation
from bfl.posteriors import Posterior

BY = ("aleatoric", "epistemic", "predictive-entropy")


@pytest.fixture(scope="module")
def case():
    random = np.random.default_rng(0)
    samples = random.dirichlet(np.ones(4) * 0.4, size=(5, 60))
    return PredictionStatistics.of(samples).result(), random.integers(0, 4, 60)


def test_summary_holds_metrics_means_and_areas(case):
    predictions, labels = case
    summary = summarize(predictions, labels)
    assert set(evaluate(predictions, labels).items()) <= set(summary.items())
    for name in uncertainties.names():
        mean = uncertainties.create(name).measure(predictions).mean()
        assert summary[f"mean-{name}"] == pytest.approx(mean, rel=1e-12)
    parts = summary["mean-expected-entropy"] + summary["mean-mutual-information"]
    assert parts == pytest.approx(summary["mean-predictive-entropy"], rel=1e-12)
    right = predictions.predicted == labels
    likelihood = -np.log(predictions.mean_probability[np.arange(60), labels])
    for by in BY:
        rank = uncertainties.create(by).measure(predictions)
        for metric, values in (("accuracy", right), ("negative-log-likelihood", likelihood)):
            expected = retention_curve(values, rank).area
            key = f"retention-area-{metric}-{by}"
            assert summary[key] == pytest.approx(expected, rel=1e-12)
    assert all(type(value) is float for value in summary.values())


def test_an_evaluation_is_written_but_for_what_marks_a_run_finished(tmp_path, case):
    folder = RunFolder.create(tmp_path, "run", {}, {})
    predictions, labels = case
    with pytest.raises(ValueError, match="labels"):
        write_evaluation(folder, predictions, labels + 4)
    assert not folder.holds("predictions.npz")
    summary = write_evaluation(folder, predictions, labels, {"calibration-bins": 5})
    assert not folder.holds("metrics.json")
    assert summary == summarize(predictions, labels, {"calibration-bins": 5})
    error = "expected-calibration-error"
    assert summary[error] == evaluate(*case, {"calibration-bins": 5})[error]
    assert summary[error] != summarize(predictions, labels)[error]
    read, read_labels = folder.predictions()
    assert summarize(read, read_labels, {"calibration-bins": 5}) == summary
    content = folder.read_json("run.json:retention")
    assert content["fraction"] == [n / 100 for n in range(1, 101)]
    curves = retention_curves(predictions, labels)
    assert set(curves) == {"accuracy", "negative-log-likelihood"}
    for metric, by_uncertainty in curves.items():
        assert set(BY) <= set(by_uncertainty)
        for by, curve in by_uncertainty.items():
            written = content["curves"][metric][by]
            assert written["area"] == curve.area == summary[f"retention-area-{metric}-{by}"]
            assert written["value"] == curve.at(content["fraction"]).tolist()


def test_degree_of_spread_is_the_norm_of_all_standard_deviations(tmp_path, case):
    deviations = np.array([3.0, 4.0, 12.0])
    posterior = Posterior(np.ones(3), deviations**2, point=np.full(5, 7.0))
    folder = RunFolder.create(tmp_path, "run", {}, {})
    numbers = write_evaluation(folder, *case, posterior=posterior)
    assert numbers["degree-of-spread"] == 13.0
    points = Posterior(np.zeros(0), np.zeros(0), point=np.ones(5))
    assert "degree-of-spread" not in write_evaluation(folder, *case, posterior=points)
    # Summed in float64: a million small variances do not vanish beside a large one.
    many = np.append(np.full(10**6, 1e-8), 1.0).astype(np.float32)
    assert Posterior(many, many).degree_of_spread == pytest.approx(np.sqrt(1.01), rel=1e-6)


def test_environment_can_be_written_and_names_what_matters():
    environment = describe_environment()
    assert json.loads(json.dumps(environment)) == environment
    assert environment["bfl"] == bfl.__version__
    assert environment["numpy"] == np.__version__
    assert {"flwr", "tensorflow", "tensorflow-probability", "tf-keras", "ray"} <= set(environment)
    assert {"memory-bytes", "platform", "git-commit", "git-changed"} <= set(environment)
    assert package_version("no-such-package-anywhere") is None


def test_the_vector_instructions_that_bits_depend_on_are_named(monkeypatch):
    """Two processors of one name may have AVX-512 or not, and oneDNN may be held to fewer."""
    said = "processor: 0\nvendor_id: V\nmodel name: EPYC\nmodel: 7\nflags: fpu fma avx2 {}\n\nx: 1"
    found = {}
    for more in ("avx512f", ""):
        monkeypatch.setattr(Path, "read_text", lambda *_, more=more, **__: said.format(more))
        environment = describe_environment()
        assert environment["processor"] == "EPYC"
        assert environment["processor-family"] == "vendor_id V, model 7"
        found[more] = environment["vector-instructions"]
    assert found == {"avx512f": "avx2 avx512f fma", "": "avx2 fma"}
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert describe_environment()["vector-instructions"].endswith("ONEDNN_MAX_CPU_ISA=AVX2")


def test_the_results_import_no_heavy_package():
    program = (
        "import sys, bfl.experiments.results.figures, bfl.experiments.results.table\n"
        "from bfl.experiments.results import environment\n"
        "environment.describe_environment()\n"
        "heavy = {'tensorflow', 'tf_keras', 'flwr', 'ray', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def git(folder, *arguments):
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_is_that_of_the_checkout_itself(tmp_path):
    nothing = {"git-commit": None, "git-changed": None}
    assert describe_commit(tmp_path) == nothing
    git(tmp_path, "init", "-q")
    assert describe_commit(tmp_path) == nothing  # no commit yet
    (tmp_path / "file").write_text("one")
    (tmp_path / "inner").mkdir()
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "--no-verify", "-m", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert describe_commit(tmp_path) == {"git-commit": commit, "git-changed": False}
    (tmp_path / "file").write_text("two")
    assert describe_commit(tmp_path) == {"git-commit": commit, "git-changed": True}
    # An installed copy inside somebody else's checkout is not of that commit.
    assert describe_commit(tmp_path / "inner") == nothing
