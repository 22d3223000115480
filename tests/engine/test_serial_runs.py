"""Whole runs in this process: every setting reaches the clients, threads, the environment."""

import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from runs_in_process import ROOT, make_run

from bfl.engine.flower.app import FlowerApp, run_serially
from bfl.errors import ConfigurationError
from bfl.experiments.results.run_folder import RunFolder

SMALL: dict[str, Any] = {
    "model": "mlp",
    "rounds": 1,
    "local-epochs": 1,
    "mc-samples": 2,
    "evaluate-mc-samples": 1,
}

pytestmark = pytest.mark.usefixtures("undrawn_figures")


def run(tmp_path: Path, name: str, clients: int = 3, **changes: Any) -> RunFolder:
    return make_run(SMALL, clients, tmp_path / name, **changes)


@pytest.mark.slow
@pytest.mark.long
def test_settings_reach_the_clients(tmp_path: Path) -> None:
    """Each of these changes the result: none is dropped on the way."""
    base = {"partition": "dirichlet", "alpha": 0.5, "strategy": "dwc", "prior": "previous-global"}
    few = {"train-examples": 200, "test-examples": 50, "evaluate-every": 0}
    changes: list[dict[str, Any]] = [
        {},
        {"alpha": 5.0},
        {"partition": "shards"},
        {"prior": "fixed"},
        {"prior": "fixed", "prior-scale": 0.1},
        {"strategy": "wc", "weighting": "max-discrepancy"},
        {"learning-rate": 0.01},
        {"batch-size": 16},
        {"seed": 1},
        {"fraction-train": 0.5},
        {"augmentation": "crop-flip", "crop-padding": 1},
        {"initial-scale": 0.01},
        {"variational-layers": "last"},
        {"optimizer": "sgd"},
        {"optimizer": "sgd", "momentum": 0.5},
        {"optimizer": "sgd", "weight-decay": 0.1},
        {"optimizer": "sgd", "weight-decay": 0.1, "weight-decay-of": "everything"},
    ]
    digests = set()
    for number, change in enumerate(changes):
        folder = run(tmp_path, str(number), 5, **{**base, **few, **change})  # type: ignore[arg-type]
        digests.add(folder.rounds()[-1]["posterior-sha256"])
    assert len(digests) == len(changes)


@pytest.mark.usefixtures("tensorflow")  # which begins with one thread
def test_a_process_that_computes_with_other_threads_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BFL_CPUS", "1")
    app = FlowerApp.read(ROOT)
    few = {"rounds": 0, "output-dir": str(tmp_path)}
    two = {"client_resources": {"num_cpus": 2}}
    with (
        pytest.warns(UserWarning, match=r"has 2 CPUs.* the 1 threads"),
        pytest.raises(ConfigurationError, match="rounds"),
    ):
        run_serially(app, few, 3, two)
    one = {"client_resources": {"num_cpus": 1}}
    with (
        warnings.catch_warnings(action="error", category=UserWarning),
        pytest.raises(ConfigurationError, match="rounds"),
    ):
        run_serially(app, few, 3, one)


@pytest.mark.parametrize("before", [None, "7"])
def test_a_run_leaves_the_environment_as_it_was(
    before: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever makes it: what the process computes afterwards is not a client's."""
    monkeypatch.delenv("BFL_CPUS")
    if before:
        monkeypatch.setenv("BFL_CPUS", before)
    with pytest.raises(ConfigurationError, match="rounds"):
        run_serially(FlowerApp.read(ROOT), {"rounds": 0, "output-dir": str(tmp_path)}, 3, {})
    assert os.environ.get("BFL_CPUS") == before
