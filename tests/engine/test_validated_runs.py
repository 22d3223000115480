"""Runs that validate on images of the server's own."""

from pathlib import Path
from typing import Any

import pytest
from runs_in_process import make_run

from bfl.experiments.run.evaluator import Evaluator

VALUES: dict[str, Any] = {
    "model": "mlp",
    "inference": "deterministic",
    "strategy": "nwa",
    "rounds": 2,
    "local-epochs": 1,
    "train-examples": 100,
    "test-examples": 20,
    "mc-samples": 1,
    "evaluate-mc-samples": 1,
    "evaluate-every": 2,
    "server-examples": 0.3,
}

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn_figures")]


def test_every_round_is_validated_where_the_server_has_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {**VALUES, "server-data": "held-back", "closing": "bayesian-head"}
    folder = make_run(values, 2, tmp_path / "run")
    rounds = folder.rounds()
    closed = folder.metrics()["validation-negative-log-likelihood"]
    assert closed < rounds[-1]["validation-negative-log-likelihood"]
    for name in ("accuracy", "mean-epistemic"):
        assert all(f"validation-{name}" in entry for entry in rounds)
        # Validation is every round's, the test data only the rounds' that are evaluated.
        assert [name in entry for entry in rounds] == [False, True]
    [held] = folder.read_json("run.json:partition")["server"]["num_examples"]
    assert held == 30
    assert sum(folder.read_json("run.json:partition")["num_examples"]) == 70
    monkeypatch.setattr(Evaluator, "validation_metrics", pytest.fail)
    without = make_run({**VALUES, "rounds": 1}, 2, tmp_path / "without")
    assert not [key for key in without.rounds()[0] if key.startswith("validation-")]
    assert "server" not in without.read_json("run.json:partition")
