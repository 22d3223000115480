"""The end of a run: what is evaluated, written and shown."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import strategies.application.final_evaluation
from bfl.configuration import resolve
from bfl.evaluation.prediction import Predictions, PredictionStatistics
from bfl.experiments.results.run_folder import (
    METRICS,
    POSTERIOR,
    PREDICTIONS,
    RETENTION,
    RUN,
    RunFolder,
)
from bfl.experiments.results.table import ProgressReport
from bfl.experiments.run.resume import Checkpoint, Checkpoints
from bfl.posteriors import Manifest, Parameter, Posterior
from strategies.application.final_evaluation import finish as finish_run
from strategies.application.final_evaluation import last_ensemble
from strategies.application.rounds import FederationRun
from strategies.server_state import ServerState

N, CLASSES = 24, 3
FILES = [POSTERIOR, PREDICTIONS, RUN, "figures/any.png"]
"""What the end of a run leaves, beside the metrics."""


class Evaluator:
    """Judges with probabilities that no network has given."""

    manifest = Manifest((Parameter("dense/kernel", (2,), True, "he-normal"),))
    server_data = None
    validates = False
    foreign = ()
    dataset = SimpleNamespace(
        test_images=np.zeros((N, 2, 2, 1), np.uint8),
        test_labels=np.arange(N) % CLASSES,
        tested_on=np.arange(N) % CLASSES,
        test_targets=None,
        encoding=None,
    )

    def __init__(self) -> None:
        self.configuration = resolve({"mc-samples": 2})

    def predict(self, posterior: Posterior, **_: Any) -> Predictions:
        probability = np.random.default_rng(0).dirichlet(np.ones(CLASSES), size=N)
        # Equal samples: no epistemic uncertainty is left, of which the run warns.
        return PredictionStatistics.of([probability, probability]).result()


def finish(folder: RunFolder) -> None:
    evaluator, federation = Evaluator(), SimpleNamespace(size=2, noise_anew=False)
    data, progress = SimpleNamespace(test=None), ProgressReport(1, Console(quiet=True))
    run = FederationRun(
        configuration=evaluator.configuration,
        grid=None,  # type: ignore[arg-type]
        federation=federation,  # type: ignore[arg-type]
        results=folder,
        evaluator=evaluator,
        data=data,  # type: ignore[arg-type]
        progress=progress,
    )
    finish_run(run, Posterior(np.zeros(2, np.float32), np.ones(2, np.float32)))


@pytest.mark.parametrize("file", [*FILES, METRICS])
def test_a_run_killed_before_a_file_is_there_is_not_finished(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(tmp_path, "run", {"rounds": 1}, {})
    replace = Path.replace

    def killed(self: Path, target: Path) -> Path:
        if target == folder.path / file:
            raise KeyboardInterrupt
        return replace(self, target)

    # Drawn figures take seconds.
    monkeypatch.setattr(
        "strategies.application.final_evaluation.draw_all",
        lambda f: [f.write("figures/any.png", b"figure")],
    )
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            finish(folder)
    assert not folder.holds(METRICS)
    finish(folder)
    assert folder.holds(METRICS)
    assert all(map(folder.holds, (*FILES, RETENTION, "predictions.npz:example-images")))
    assert len(folder.warnings()) == 1


def posterior(value: float) -> Posterior:
    numbers = np.full(3, value, np.float32)
    return Posterior(mean=numbers, variance=numbers, point=numbers[:0])


@pytest.mark.parametrize(("rounds", "judged"), [([1, 2], True), ([1], False)])
def test_models_of_an_older_round_are_not_judged(
    rounds: list[int], judged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path)
    for number in rounds:
        state = ServerState.first(posterior(number), 2, {})
        Checkpoints(folder).save(Checkpoint(number, state.posterior, state.to_arrays()))
    found: list[int] = []

    def noted(evaluator: Any, state: ServerState) -> None:
        found.append(state.server_round)

    monkeypatch.setattr(strategies.application.final_evaluation, "evaluated_ensemble", noted)
    said: list[str] = []
    ended: Any = SimpleNamespace(
        checkpoints=Checkpoints(folder),
        evaluator=None,
        configuration=resolve({"predictive": "ensemble"}, check_data=False),
        progress=SimpleNamespace(say=said.append),
    )
    last_ensemble(ended, posterior(2))
    assert found == ([2] if judged else [])
    assert len(said) == (not judged)
    assert all("round 1" in text for text in said)
