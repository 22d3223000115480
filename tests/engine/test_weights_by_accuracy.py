"""Weights by accuracy in whole runs with a small real network, in this process."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs_in_process import make_run

from bfl import randomness
from bfl.evaluation.prediction.monte_carlo import Predictor
from bfl.learning.training.task import LocalTask
from bfl.learning.training.trainer import LocalTrainer

CLIENTS, SHUFFLED = 3, 1

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn_figures")]


@pytest.mark.parametrize("inference", ["deterministic", "flipout"])
def test_a_client_with_shuffled_labels_has_the_least_weight(
    inference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one network for all clients and the server's evaluation, traced once."""
    train, logits = LocalTrainer.train, Predictor.logits
    predictors: set[Predictor] = set()

    def shuffling(trainer: LocalTrainer, images: Any, labels: Any, task: LocalTask) -> Any:
        if task.key_labels[1] == SHUFFLED:
            labels = randomness.generator(0, "shuffled").permutation(labels)
        return train(trainer, images, labels, task)

    def watched(predictor: Predictor, *given: Any) -> Any:
        predictors.add(predictor)
        return logits(predictor, *given)

    monkeypatch.setattr(LocalTrainer, "train", shuffling)
    monkeypatch.setattr(Predictor, "logits", watched)
    values = {
        "strategy": "abavg",
        "pooling": "log-linear-pool" if inference == "flipout" else "naive-weighted-averaging",
        "inference": inference,
        "model": "mlp",
        "initial-scale": 0.01,
        "train-examples": 400,
        "server-examples": 100,
        "test-examples": 50,
        "rounds": 2,
        "local-epochs": 4,
        "batch-size": 20,
        "mc-samples": 1,
        "evaluate-mc-samples": 1,
    }
    for entry in make_run(values, CLIENTS, tmp_path / "run").rounds():
        weights = [client["weight"] for client in entry["per-client"]]
        assert np.sum(weights) == pytest.approx(1)
        honest = [weight for k, weight in enumerate(weights) if k != SHUFFLED]
        assert weights[SHUFFLED] < 0.5 * min(honest)
        assert entry["largest-weight"] == max(weights)
        # Shares of 100 images: whole numbers of right ones, up to 100 for each client.
        right = np.multiply.outer(np.arange(1, 100 * CLIENTS + 1), weights)
        assert np.isclose(right, np.round(right), atol=1e-9).all(axis=1).any()
    assert [predictor.traces for predictor in predictors] == [1]
