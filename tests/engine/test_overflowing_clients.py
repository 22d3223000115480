"""Whole runs with clients whose values are finite, and so large that a network's logits are not.

Two of three: of one alone the update is refused. No run may end in a traceback.
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
    "attackers": 2,  # of one, the update is refused
    "noise-scale": 1e14,
}

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn_figures")]


def run(folder: Path, **changes: Any) -> RunFolder:
    return make_run(VALUES, CLIENTS, folder, **changes)


def test_the_run_goes_on_without_a_client_whose_values_nobody_can_have_learnt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named, and the accuracy is that of a run in which all are honest."""
    more = {"strategy": "nwa", "inference": "deterministic", "noise_scale": 1e30, "rounds": 5}
    more |= {"train_examples": 1200, "test_examples": 300}
    honest, folder = (run(tmp_path / f"{count}", **more, attackers=count) for count in (0, 1))
    assert [entry["refused"] for entry in folder.rounds()] == [1] * 5
    assert "round 1, client 0: update refused: " in capsys.readouterr().out
    assert folder.metrics()["accuracy"] > honest.metrics()["accuracy"] - 0.02 > 0.9


def test_a_pool_whose_predictions_are_not_finite_is_no_round(tmp_path: Path) -> None:
    values = {"strategy": "fedavg", "inference": "deterministic", "server_data": "held-back"}
    for resume in (False, True):
        with pytest.raises(RunError, match=r"round 1: 500 of .*logits are not finite"):
            run(tmp_path / "run", **values, server_examples=40, resume=resume)
        folder = RunFolder(tmp_path / "run")
        assert not folder.rounds()
        assert Checkpoints(folder).latest() is None


@pytest.mark.parametrize("predictive", ["posterior", "ensemble"])
def test_an_ensemble_is_judged_without_such_a_client(predictive: str, tmp_path: Path) -> None:
    """The pool is healthy, and who watches it changes nothing."""
    changes = {"strategy": "nwa", "weighting": "distance", "predictive": predictive}
    folder = run(tmp_path / "run", **changes, ensemble_samples=2)
    for numbers in (*folder.rounds(), folder.metrics()):
        assert numbers["accuracy"] > 0.0
        assert "logits-not-finite" not in numbers
        # Samples are drawn around what all clients have sent.
        assert numbers.get("ensemble-left-out") == (4.0 if predictive == "ensemble" else None)
    if predictive == "ensemble":
        found = folder.read_json("run.json:ensemble")
        assert list(found["member-accuracy"]) == ["average", "client-2"]
        assert found["left-out"] == ["sample-0", "sample-1", "client-0", "client-1"]
