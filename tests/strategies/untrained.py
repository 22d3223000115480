"""This package's clients without TensorFlow: nothing is trained, all else is as it is."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bfl.learning.training import LocalResult, LocalTask
from bfl.posteriors import Manifest, Parameter
from clients import round as client_round


class Untrained:
    """Stands for a trainer: it gives back what was received."""

    network = SimpleNamespace(manifest=Manifest((Parameter("a/kernel", (4,), True, "he-normal"),)))

    def train(self, images: Any, labels: Any, task: LocalTask) -> LocalResult:
        """Return what a trainer returns that has trained nothing."""
        return LocalResult(task.received, 1.0, 1.0, 0.0, {}, 1, np.ones(1, bool))


def train_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have clients train nothing, and the end of a run draw nothing, which takes a second."""
    monkeypatch.setattr(client_round, "trainer_for", lambda *_, **__: Untrained())
    monkeypatch.setattr(client_round, "start_tensorflow", lambda: None)
    monkeypatch.setattr("strategies.application.final_evaluation.draw_all", lambda folder: [])
