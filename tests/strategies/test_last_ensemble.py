"""The ensemble that is judged at the end of a run is that of the posterior which is judged."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import strategies.application.final_evaluation
from bfl.configuration import resolve
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.resume import Checkpoint, Checkpoints
from bfl.posteriors import Posterior
from strategies.application.final_evaluation import last_ensemble
from strategies.server_state import ServerState


def posterior(value: float) -> Posterior:
    numbers = np.full(3, value, np.float32)
    return Posterior(mean=numbers, variance=numbers, point=numbers[:0])


@pytest.mark.parametrize(("rounds", "judged"), [([1, 2], True), ([1], False)])
def test_models_of_an_older_round_are_not_judged(
    rounds: list[int], judged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the last checkpoint had been damaged: the one before it is found."""
    folder = RunFolder(tmp_path)
    for number in rounds:
        state = ServerState.first(posterior(number), 2, {})
        Checkpoints(folder).save(Checkpoint(number, state.posterior, state.to_arrays()))
    found: list[int] = []

    def noted(evaluator: Any, state: ServerState) -> None:
        found.append(state.server_round)

    monkeypatch.setattr(strategies.application.final_evaluation, "evaluated_ensemble", noted)
    said: list[str] = []
    context: Any = SimpleNamespace(
        folder=folder,
        evaluator=None,
        configuration=resolve({"predictive": "ensemble"}, check_data=False),
        progress=SimpleNamespace(say=said.append),
    )
    last_ensemble(context, posterior(2))
    assert found == ([2] if judged else [])
    assert len(said) == (not judged)
    assert all("round 1" in text for text in said)
