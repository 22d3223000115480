"""What each client, and all data in one place, give beside a federation."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import sem, ttest_rel

import bfl
from bfl.commands.main import main
from bfl.deployment.run import LAST
from bfl.errors import ConfigurationError
from bfl.evaluation.metrics.scores import NegativeLogLikelihood, unpaired_interval
from bfl.experiments.results.clients import GAIN, baseline_rows, baseline_verdict, own_rows
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.results.summary import final_values, write_owners
from bfl.experiments.run.baselines import compared, make_baselines, of_examples, of_own_models

SMALL = {
    "model": "mlp",
    "clients": 2,
    "rounds": 2,
    "local_epochs": 1,
    "train_examples": 200,
    "test_examples": 60,
    "mc_samples": 2,
    "partition": "dirichlet",
    "alpha": 0.1,
    "verbose": False,
}


def test_baselines_stand_beside_the_federation(tmp_path: Path) -> None:
    result = bfl.run(**SMALL, baselines="local+central", output_dir=tmp_path, name="run")
    found = result.baselines
    assert {*found["local"]} == {"client 0", "client 1"}
    assert found["federation"]["accuracy"] == result.metrics["accuracy"]
    federated = np.asarray(final_values(RunFolder(result.folder)))
    for name, own in {"central": found["central"], **found["local"]}.items():
        folder = RunFolder(tmp_path / f"run-{name.replace('client ', 'local-')}")
        assert own["accuracy"] == folder.metrics()["accuracy"]
        alone, labels = folder.predictions()
        apart = federated - (alone.predicted == labels)
        assert own["difference"] == pytest.approx(apart.mean())
        # Agresti and Min (2005): half an example more in each of the four cells, at 95 %. Of two
        # clients, each has half of the 5 %.
        z = 1.959964 if name == "central" else 2.241403
        pairs = np.append(apart, [1, -1, 0, 0])
        weights = np.append(np.ones(60), np.full(4, z**2 / 8))
        centre = np.average(pairs, weights=weights)
        variance = np.average((pairs - centre) ** 2, weights=weights)
        half = z * math.sqrt(variance / weights.sum())
        assert own["difference-interval"] == pytest.approx([centre - half, centre + half], abs=1e-5)
    # One client has trained and closed alone, on its own part of the same division.
    folders = [RunFolder(tmp_path / f"run-local-{client}") for client in (0, 1)]
    folders += [RunFolder(tmp_path / "run-central"), RunFolder(result.folder)]
    losses = [NegativeLogLikelihood().values(*each.predictions()) for each in folders[:1:-1]]
    ends = ttest_rel(*losses).confidence_interval()
    assert found["central"]["nll-difference-interval"] == pytest.approx(list(ends))
    assert found["central"]["nll-difference"] == pytest.approx(np.mean(ends))
    trained, held_back = [], []
    for folder in folders:
        with folder.reading_arrays("closing.npz") as held:
            held_back.append(held["familiarity-counts"].sum())
        reports = folder.rounds()[-1]["per-client"]
        trained.append({each["client"]: each["num-examples"] for each in reports})
    assert trained[-1] == {**trained[0], **trained[1]}
    assert trained[2] == {0: sum(trained[-1].values())}
    assert held_back[2] == held_back[3] == sum(held_back[:2]) == 200 - sum(trained[-1].values())
    partitions = [folder.read_json("run.json:partition") for folder in folders]
    assert partitions[0] == partitions[1] == partitions[3]
    assert found["local"]["client 0"] != found["local"]["client 1"]
    assert [GAIN in row for row in baseline_rows(found)] == [False, True, True, True]


def test_errors_are_compared_by_students_t_and_each_client_on_its_own_rows(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    folders = []
    for name, width in (("run", 1.0), ("run-local-1", 3.0)):
        folder = RunFolder.create(tmp_path, name, {"clients": 2}, {})
        answers = {"means": width * random.normal(size=(1, 30)), "variances": np.ones((1, 30))}
        folder.write_arrays("predictions.npz", {**answers, "targets": np.zeros(30)})
        folder.write_metrics({"root-mean-squared-error": 1.0})
        write_owners(folder, [np.arange(9), np.arange(9, 30)], 30)
        folders.append(folder)
    theirs, values = map(final_values, folders)
    assert theirs is not None
    assert values is not None
    found = compared(folders[1], folders[0], 1, 0.975)
    own = found["own"]
    assert own["examples"] == 21
    test = ttest_rel(theirs[9:], values[9:])
    ends = np.array(test.confidence_interval(0.975))
    both = math.sqrt(theirs[9:].mean()) + math.sqrt(values[9:].mean())
    assert own["difference-interval"] == pytest.approx(ends / both)
    assert own["difference"] == pytest.approx(np.mean(own["difference-interval"]))
    half = 2.085963 * sem(values[9:]) / (2 * own["root-mean-squared-error"])
    assert np.ptp(own["interval"]) == pytest.approx(2 * half)
    assert own_rows({"local": {"A": found}})[0]["shown"] == "the federation is better"
    together = of_own_models(folders[0], folders)
    mean = np.concatenate([theirs[:9], values[9:]]).mean()
    assert together["root-mean-squared-error"] == pytest.approx(math.sqrt(mean))
    # Fewer than ten rows decide nothing, nor do two models without an error.
    few = compared(folders[1], folders[0], 0)["own"]
    assert not {"interval", "difference-interval"} & few.keys()
    assert "too few" in own_rows({"local": {"A": {"own": few}}})[0]["shown"]
    none = of_examples(np.zeros(12), np.zeros(12), errors=True)
    assert none["difference-interval"] == [0.0, 0.0]


def test_rows_that_nodes_alone_have_are_compared_by_what_nodes_count(tmp_path: Path) -> None:
    """Each model on the rows of its own client; the interval is of Newcombe (1998), table II."""
    assert unpaired_interval(0.9, 0.3, 10, 0.95) == pytest.approx((0.1705, 0.8090), abs=5e-5)
    folders = []
    of_each = {"run": (25, 9, 5), "run-local-0": (15, 0, 5), "run-local-1": (0, 3, 5)}
    for name, right in {**of_each, "run-local-2": (0, 0, 5)}.items():
        folders.append(RunFolder.create(tmp_path, name, {}, {}))
        counted = zip(right, (30, 10, 5 + len(folders)), strict=True)  # the third has new rows
        rows = [{"test-examples": n, "global-accuracy": k / n} for k, n in counted]
        folders[-1].write_json("run.json:clients", dict(zip("012", rows, strict=True)))
        folders[-1].write_metrics({"accuracy": 0.5})
    together, second = (of_own_models(folders[0], folders[1:], each) for each in ([], [0]))
    found = {"own": together, "local": {"B": {"accuracy": 0.5, "own": second}}}
    shown = [(row["federation"], row["other model"]) for row in own_rows(found)]
    assert shown == [("9 of 10", "3 of 10"), ("34 of 40", "18 of 40")]
    assert second["difference-interval"] == pytest.approx([0.1705, 0.8090], abs=5e-5)
    assert "right for 34 of 40 test examples" in baseline_verdict(found)


def test_unknown_baselines_are_refused(tmp_path: Path) -> None:
    assert main(["run", "--baselines", "local"]) == 2
    kept = RunFolder.create(tmp_path, "run", {"rounds": 2}, {})
    with pytest.raises(ConfigurationError, match="central"):
        bfl.run(**SMALL, baselines="centrale", output_dir=tmp_path, name="run", overwrite=True)
    assert kept.config() == {"rounds": 2}


@pytest.mark.parametrize(
    ("keys", "finished", "resumes"),
    [
        ({"seed": 1, "partition": "iid"}, True, None),  # it stays
        ({"seed": 1, "partition": "iid"}, False, True),
        ({"seed": 2, "partition": "iid"}, True, False),
        ({"seed": 1, "partition": "iid", "closing": "none"}, True, False),
        ({"seed": 1, "partition": "dirichlet"}, True, False),  # which a real run refuses
    ],
)
def test_a_baseline_that_is_there_stays_goes_on_or_is_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture, keys: dict, finished: bool, resumes: bool | None
) -> None:
    kept = {"clients": 2, "seed": 1, "partition": "x", "closing": "feature-density"}
    run = RunFolder.create(tmp_path, "run", kept, {})
    run.write_json("metrics.json", {"accuracy": 0.5})
    there = RunFolder.create(tmp_path, "run-central", {"clients": 1, **keys}, {})
    if finished:
        there.write_json("metrics.json", {"accuracy": 0.25})
    made, told = [], []

    def make(changes: dict, _: int) -> None:
        made.append((changes["resume"], changes["exchange"]))
        there.path.mkdir(exist_ok=True)
        there.write_json("metrics.json", {"accuracy": 0.75})

    make_baselines(run, ["central"], make, told.append)
    assert LAST in told[-1]
    assert main(["runs", str(tmp_path)]) == 0
    assert resumes is False or "run-central (baseline of run)" in capsys.readouterr().out
    assert made == ([] if resumes is None else [(resumes, "direct")])
    assert there.metrics()["accuracy"] == (0.25 if resumes is None else 0.75)
