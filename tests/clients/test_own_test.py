"""A node with test data of its own says how well its posterior does on them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bfl.configuration import resolve
from bfl.data.datasets import load_dataset
from bfl.engine.flower import FlowerApp, run_serially
from bfl.engine.serial import SerialGrid
from bfl.errors import ConfigurationError
from bfl.experiments.results.run_folder import RunFolder
from bfl.federation.wire import TrainTask
from bfl.posteriors import Posterior
from clients import evaluation
from clients.evaluation import evaluated_metrics, own_test_metrics

ROOT = Path(__file__).resolve().parent.parent.parent
SITE: Any = SimpleNamespace(dataset="npz:site.npz", plugins_folder=None)


def test_what_is_measured_is_the_posterior_that_the_client_has_learnt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the run's samples, drawn anew for each client and round, and right against wrong."""
    asked: list[Any] = []

    class Evaluator:
        dataset = SimpleNamespace(test_labels=np.array([1, 1, 1, 2]))

        def predict(self, posterior: Posterior, *, samples: int, purpose: str) -> Any:
            asked.append((posterior, samples, purpose))
            return SimpleNamespace(predicted=np.array([1, 1, 1, 1]))

    monkeypatch.setattr(evaluation, "cached_dataset", lambda *_: None)
    monkeypatch.setattr(evaluation, "_evaluator", lambda *given: Evaluator())
    configuration = resolve({"evaluate-every": 2, "evaluate-mc-samples": 3})
    learnt = Posterior(np.zeros(1), np.ones(1))
    found = []
    for client, server_round in [(0, 1), (0, 2), (1, 2), (0, 4)]:
        task = TrainTask(server_round, client, "{}", 3, None)
        found.append(own_test_metrics(SITE, configuration, task, learnt, {}))
    assert found == [{}, *[{"test-accuracy": 0.75, "test-examples": 4}] * 3]
    assert all(posterior is learnt and samples == 3 for posterior, samples, _ in asked)
    assert len({purpose for _, _, purpose in asked}) == 3
    without: Any = SimpleNamespace(dataset="", plugins_folder=None)
    assert own_test_metrics(without, configuration, task, learnt, {}) == {}


@pytest.mark.usefixtures("tensorflow")
def test_where_clients_evaluate_the_posterior_is_predicted_with_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its accuracy is the meme's, under its own name in the rounds that are evaluated."""
    from bfl.evaluation.prediction.monte_carlo import Predictor
    from bfl.experiments.run.trainer import trainer_for

    predicted: list[Posterior] = []
    original = Predictor.predict

    def predict(self: Predictor, posterior: Posterior, *given: Any, **named: Any) -> Any:
        predicted.append(posterior)
        return original(self, posterior, *given, **named)

    monkeypatch.setattr(Predictor, "predict", predict)
    values = {"model": "mlp", "evaluated-by": "clients", "evaluate-every": 2, "rounds": 3}
    configuration = resolve({**values, "evaluate-mc-samples": 2})
    trainer = trainer_for(configuration, (8, 8, 1), 10)
    learnt = trainer.network.initial_posterior(0)
    node: Any = SimpleNamespace(dataset="digits", plugins_folder=None)
    found = []
    for server_round in (1, 2, 3):
        task = TrainTask(server_round, 0, json.dumps(values), 10, None)
        models = (learnt, {})
        evaluated = evaluated_metrics(
            configuration, task, node, trainer, configuration.architecture, models
        )
        own = own_test_metrics(node, configuration, task, learnt, evaluated)
        found.append((own, evaluated.get("meme-accuracy")))
    assert predicted == [learnt, learnt]  # in the second round and, where nothing is due, the last
    assert found[0] == ({}, None)
    assert found[1][0] == {"test-accuracy": found[1][1], "test-examples": 360}
    assert found[2][0] == {}
    assert 0.0 <= found[2][1] <= 1.0


def test_plugins_are_taken_from_where_the_node_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for its own test: a path of the server's is not run there."""
    theirs = tmp_path / "mine.py"
    theirs.write_text("raise SystemExit('the server chose this path')\n", encoding="utf-8")
    text = json.dumps({"plugins": str(theirs)})
    monkeypatch.setattr(evaluation, "cached_dataset", lambda *_: load_dataset("digits"))
    task = TrainTask(2, 0, text, 10, None)
    restricted: Any = SimpleNamespace(dataset=SITE.dataset, plugins_folder="")
    with pytest.raises(ConfigurationError, match=r"mine\.py"):
        own_test_metrics(
            restricted, resolve({"evaluate-every": 2}), task, Posterior(np.zeros(1), np.ones(1)), {}
        )


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn_figures")
def test_a_client_with_test_data_of_its_own_is_tested_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only it, in the rounds that are evaluated; its test changes no bit of the run."""
    digits = load_dataset("digits")
    archive = tmp_path / "site.npz"
    # As many classes as it takes: of its own, the node knows seven.
    few = digits.train_labels < 7
    chosen = np.flatnonzero(few)[:80]
    test = np.flatnonzero(digits.test_labels < 7)[:30]
    np.savez(
        archive,
        x_train=digits.train_images[chosen],
        y_train=digits.train_labels[chosen],
        x_test=digits.test_images[test],
        y_test=digits.test_labels[test],
    )
    original = SerialGrid.__init__

    def with_own_data(self: SerialGrid, *arguments: Any) -> None:
        original(self, *arguments)
        self._contexts[2].node_config["dataset"] = f"npz:{archive}"

    monkeypatch.setattr(SerialGrid, "__init__", with_own_data)
    values = {
        "model": "resnet8",
        "rounds": 2,
        "local-epochs": 1,
        "train-examples": 120,
        "test-examples": 30,
        "mc-samples": 1,
        "evaluate-mc-samples": 2,
        "output-dir": str(tmp_path),
    }
    run_serially(FlowerApp.read(ROOT), {**values, "name": "tested", "evaluate-every": 2}, 2, {})
    first, second = (entry["per-client"] for entry in RunFolder(tmp_path / "tested").rounds())
    assert not any("test-accuracy" in entry for entry in first)
    assert "test-accuracy" not in second[0]
    assert second[1]["test-examples"] == 30
    assert 0.0 <= second[1]["test-accuracy"] <= 1.0
    assert second[1]["num-examples"] == 80
    run_serially(FlowerApp.read(ROOT), {**values, "name": "untested", "evaluate-every": 0}, 2, {})
    untested = RunFolder(tmp_path / "untested").rounds()
    assert not any("test-accuracy" in entry for r in untested for entry in r["per-client"])
    tested = RunFolder(tmp_path / "tested").rounds()
    assert tested[-1]["posterior-sha256"] == untested[-1]["posterior-sha256"]
    assert (second[1]["test-accuracy"] * 30) == pytest.approx(
        round(second[1]["test-accuracy"] * 30)
    )
