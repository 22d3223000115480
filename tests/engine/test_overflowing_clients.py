"""Whole runs with a client whose values are finite, and so large that a network's logits are not.

No run may end in a traceback, and none before the round is saved that its clients have trained in.
"""

from pathlib import Path
from typing import Any

import pytest
from runs_in_process import make_run

from bfl.errors import RunError
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.resume import Checkpoints

CLIENTS, ROUNDS = 3, 2
VALUES: dict[str, Any] = {
    "model": "mlp",
    "train-examples": 200,
    "test-examples": 50,
    "rounds": ROUNDS,
    "local-epochs": 1,
    "batch-size": 30,
    "mc-samples": 2,
    "evaluate-mc-samples": 1,
    "attack": "noise",
    "attackers": 1,
    "noise-scale": 1e30,
}
FEDBE: dict[str, Any] = {
    "strategy": "fedbe",
    "server-examples": 40,
    "ensemble-samples": 2,
    "distillation-epochs": 2,
    "distillation-batch-size": 20,
    "swa-cycle": 2,
    "student-augmentation": "none",
}

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn_figures")]


def run(folder: Path, **changes: Any) -> RunFolder:
    return make_run(VALUES, CLIENTS, folder, **changes)


def test_a_pool_that_cannot_be_judged_is_saved_and_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the pool nobody can learn, so the second round is refused in words; the first is kept."""
    values = {"strategy": "fedavg", "inference": "deterministic", "server_data": "held-back"}
    values["server_examples"] = 40
    for resume in (False, True):
        with pytest.raises(RunError, match="round 2: "):
            run(tmp_path / "run", **values, resume=resume)
        folder = RunFolder(tmp_path / "run")
        [entry] = folder.rounds()
        assert entry["logits-not-finite"] == 500
        assert entry["validation-logits-not-finite"] == 400
        assert not {"accuracy", "validation-accuracy"} & entry.keys()
        latest = Checkpoints(folder).latest()
        assert latest is not None
        assert latest.server_round == 1
    said = capsys.readouterr().out
    assert "500 logits are not finite (logits-not-finite), so there are no metrics of them" in said


def test_a_last_pool_that_cannot_be_judged_is_the_result_without_metrics(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", strategy="fedavg", inference="deterministic", rounds=1)
    assert folder.metrics() == {"logits-not-finite": 500}
    assert folder.holds("posterior.npz")
    assert not folder.holds("predictions.npz")


def test_an_accuracy_by_draws_gives_such_a_client_no_weight(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", strategy="abavg", accuracy_at="draws", server_examples=40)
    for entry in folder.rounds():
        assert entry["per-client"][0]["weight"] == 0.0
        assert entry["accuracy"] > 0.0


@pytest.mark.parametrize("predictive", ["posterior", "ensemble"])
def test_an_ensemble_is_judged_without_such_a_client(predictive: str, tmp_path: Path) -> None:
    """The pool is healthy, and who watches it changes nothing."""
    changes = {"strategy": "nwa", "weighting": "distance", "predictive": predictive}
    folder = run(tmp_path / "run", **changes, ensemble_samples=2)
    for numbers in (*folder.rounds(), folder.metrics()):
        assert numbers["accuracy"] > 0.0
        assert "logits-not-finite" not in numbers
        # Samples are drawn around what all clients have sent.
        assert numbers.get("ensemble-left-out") == (3.0 if predictive == "ensemble" else None)
    if predictive == "ensemble":
        found = folder.read_json("ensemble.json")
        assert list(found["member-accuracy"]) == ["average", "client-1", "client-2"]
        assert found["left-out"] == ["sample-0", "sample-1", "client-0"]


def test_such_a_client_is_no_teacher(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", **FEDBE, weighting="distance")
    for entry in folder.rounds():
        assert entry["distillation-left-out"] == 3.0
        assert entry["distillation-after"] >= 0.0
    assert folder.metrics()["accuracy"] > 0.0


@pytest.mark.parametrize("optimizer", ["swa", "sgd"])
def test_a_student_that_begins_where_such_a_client_took_the_pool_ends_a_run_in_words(
    optimizer: str, tmp_path: Path
) -> None:
    """Its teachers are chosen, its beginning is not: that is the weighting's to keep healthy."""
    where = "refinement 'distillation'" if optimizer == "swa" else "after pooling"
    with pytest.raises(RunError, match=rf"round 1, {where}: .* not finite"):
        run(tmp_path / "run", **FEDBE, distillation_optimizer=optimizer)
    assert not list((tmp_path / "run" / "pooled-round").glob("*"))


def test_without_a_teacher_a_run_ends_in_words_and_its_clients_can_train_again(
    tmp_path: Path,
) -> None:
    with pytest.raises(RunError, match=r"round 1, refinement 'distillation': .* are not finite"):
        run(tmp_path / "run", **FEDBE, attackers=CLIENTS, weighting="equal")
    assert not list((tmp_path / "run" / "pooled-round").glob("*"))
