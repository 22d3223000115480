"""Runs that validate on images of the server's own: the best posterior, early stopping, resuming.

What a validation gives is set by the tests where they need rounds to get better and worse.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs_in_process import KilledError, history, make_run

import bfl
import strategies.application.run
from bfl.errors import ConfigurationError, DataError
from bfl.experiments.results.monitoring import best_of
from bfl.experiments.results.run_folder import BEST_POSTERIOR, RunFolder
from bfl.experiments.run.evaluator import Evaluator

VALUES: dict[str, Any] = {
    "model": "mlp",
    "inference": "deterministic",
    "strategy": "nwa",
    "rounds": 4,
    "local-epochs": 1,
    "train-examples": 100,
    "test-examples": 20,
    "mc-samples": 1,
    "evaluate-mc-samples": 1,
    "server-data": "held-back",
    "server-examples": 0.3,
    "best-metric": "acc",
}
ACCURACIES = {1: 0.2, 2: 0.6, 3: 0.5, 4: 0.1}

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn_figures")]


def run(folder: Path, **changes: Any) -> RunFolder:
    return make_run(VALUES, 2, folder, **changes)


@pytest.fixture
def better_and_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have validation say that round 2 is the best."""
    real = Evaluator.validation_metrics

    def said(self: Evaluator, posterior: Any, server_round: int) -> dict[str, float]:
        measured = real(self, posterior, server_round)
        return {**measured, "validation-accuracy": ACCURACIES[server_round]}

    monkeypatch.setattr(Evaluator, "validation_metrics", said)


def test_rounds_are_validated_and_the_best_posterior_is_kept(
    tmp_path: Path, better_and_worse: None, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(tmp_path / "run", evaluate_every=2)
    rounds = folder.rounds()
    assert [entry["validation-accuracy"] for entry in rounds] == list(ACCURACIES.values())
    assert all("validation-mean-epistemic" in entry for entry in rounds)
    # Validation is every round's, the test data only the rounds' that are evaluated.
    assert ["accuracy" in entry for entry in rounds] == [False, True, False, True]
    assert folder.best() == {"metric": "validation-accuracy", "round": 2, "value": 0.6}
    best, _ = folder.posterior(BEST_POSTERIOR)
    assert best.digest() == rounds[1]["posterior-sha256"]
    assert folder.posterior()[0].digest() == rounds[3]["posterior-sha256"]
    assert "best round by validation-accuracy: 2 (0.6000)" in capsys.readouterr().out
    [held] = folder.read_json("run.json:partition")["server"]["num_examples"]
    assert held == 30
    assert sum(folder.read_json("run.json:partition")["num_examples"]) == 70

    loaded = bfl.load(folder.path, posterior="best")
    assert loaded.best["round"] == 2
    assert loaded.posterior.digest() == best.digest()
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 1), dtype=np.uint8)
    by_best = loaded.predict(images).mean_probability
    assert not np.array_equal(by_best, bfl.load(folder.path).predict(images).mean_probability)
    with pytest.raises(ConfigurationError, match="best"):
        bfl.load(folder.path, posterior="bst")


def test_early_stopping_is_exact_under_interruption(
    tmp_path: Path, better_and_worse: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patience 1 ends the run after round 3; so it does however it was interrupted before."""
    whole = run(tmp_path / "whole", patience=1)
    assert [entry["round"] for entry in whole.rounds()] == [1, 2, 3]
    original = strategies.application.run.Checkpoints.save
    for after in (2, 3):

        def stop(checkpoints: Any, checkpoint: Any, after: int = after) -> None:
            original(checkpoints, checkpoint)
            if checkpoint.server_round == after:
                raise KilledError

        name = tmp_path / f"interrupted-{after}"
        with monkeypatch.context() as patch:
            patch.setattr(strategies.application.run.Checkpoints, "save", stop)
            with pytest.raises(KilledError):
                run(name, patience=1)
        folder = run(name, patience=1, resume=True)
        assert history(folder) == history(whole)
        assert folder.best() == whole.best()
        best, last = folder.posterior(BEST_POSTERIOR)[0], folder.posterior()[0]
        assert best.digest() == whole.posterior(BEST_POSTERIOR)[0].digest()
        assert last.digest() == whole.posterior()[0].digest()
        assert folder.metrics() == whole.metrics()


def test_the_best_posterior_is_of_a_round_that_the_run_has(
    tmp_path: Path, better_and_worse: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed as soon as it was written, and gone on with where what is made again gets worse.

    The best round before lies behind the last checkpoint: were it replaced, it would be lost.
    """
    original, measured = RunFolder.write_posterior, Evaluator.validation_metrics
    monkeypatch.setitem(ACCURACIES, 2, 0.1)

    def stop(folder: RunFolder, *given: Any, **facts: Any) -> None:
        original(folder, *given, **facts)
        if facts.get("round") == 3:
            raise KilledError

    def worse(evaluator: Evaluator, posterior: Any, server_round: int) -> dict[str, float]:
        return {**measured(evaluator, posterior, server_round), "validation-accuracy": 0.01}

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "write_posterior", stop)
        with pytest.raises(KilledError):
            run(tmp_path / "run")
    monkeypatch.setattr(Evaluator, "validation_metrics", worse)
    folder = run(tmp_path / "run", resume=True)
    best = best_of(folder.rounds(), "accuracy")
    assert best is not None
    assert folder.best() == {"metric": best.metric, "round": best.round, "value": best.value}
    digest = folder.posterior(BEST_POSTERIOR)[0].digest()
    assert digest == folder.rounds()[best.round - 1]["posterior-sha256"]


def test_without_images_of_its_own_nothing_is_validated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Evaluator, "validation_metrics", pytest.fail)
    folder = run(tmp_path / "run", rounds=1, server_data="")
    assert not [key for key in folder.rounds()[0] if key.startswith("validation-")]
    assert not folder.holds(BEST_POSTERIOR)
    assert "server" not in folder.read_json("run.json:partition")
    with pytest.raises(DataError, match="server-data"):
        _ = bfl.load(folder.path, posterior="best").posterior


def test_a_run_is_logged_and_its_log_does_not_change_it(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    plain = run(tmp_path / "plain", rounds=2, server_data="")
    logged = run(tmp_path / "logged", rounds=2, server_data="", log="tensorboard")
    assert history(plain) == history(logged)
    read = EventAccumulator(str(logged.path / "tensorboard"))
    read.Reload()
    events = read.Tensors("accuracy")
    assert [event.step for event in events] == [1, 2]
    for event, entry in zip(events, logged.rounds(), strict=True):
        assert event.tensor_proto.float_val[0] == pytest.approx(entry["accuracy"])
    [final] = read.Tensors("final/accuracy")
    assert final.tensor_proto.float_val[0] == pytest.approx(logged.metrics()["accuracy"])
    assert "figures/learning-curve" in read.Tags()["images"]
    # More rounds under another logger, and none twice.
    again = run(tmp_path / "logged", rounds=3, server_data="", log="tb", resume=True)
    read = EventAccumulator(str(again.path / "tensorboard"))
    read.Reload()
    assert [event.step for event in read.Tensors("accuracy")] == [1, 2, 3]
