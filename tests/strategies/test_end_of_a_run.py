"""The end of a run: what is evaluated, written and shown."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

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
from bfl.posteriors import Manifest, Parameter, Posterior
from strategies.application.final_evaluation import finish as finish_run
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
    evaluator, federation = Evaluator(), SimpleNamespace(size=2, noise_anew=False, own_examples={})
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
    posterior = Posterior(np.zeros(2, np.float32), np.ones(2, np.float32))
    finish_run(run, ServerState.first(posterior, 2))


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
    assert all(map(folder.holds, (*FILES, RETENTION)))
    assert len(folder.warnings()) == 1
