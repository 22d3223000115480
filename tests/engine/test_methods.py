"""Whole methods with real networks, in this process: a few rounds on a few digits."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs_in_process import digests, interrupt, make_run

from bfl.errors import ConfigurationError
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.resume import Checkpoints
from strategies.server_state import ServerState

CLIENTS, ROUNDS = 3, 3
VALUES: dict[str, Any] = {
    "model": "mlp",
    "train-examples": 150,
    "test-examples": 30,
    "rounds": ROUNDS,
    "local-epochs": 1,
    "mc-samples": 2,
    "evaluate-every": 0,
    "batch-size": 50,
    "fraction-train": 0.67,
    "partition": "dirichlet",
    "alpha": 1.0,
}

MODEL_OF = {"scaffold": "resnet8"}  # which has point parameters and moving statistics as well

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("undrawn_figures")]


def run(folder: Path, **changes: Any) -> RunFolder:
    model = MODEL_OF.get(changes.get("strategy", ""), VALUES["model"])
    return make_run(VALUES, CLIENTS, folder, **{"model": model, **changes})


def state_of(folder: RunFolder) -> ServerState:
    """Return where a finished run stands on the server."""
    last = Checkpoints(folder).latest()
    assert last is not None
    return ServerState.from_arrays(last.server_round, last.posterior, last.state)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return finished runs of a strategy, each made once."""
    made: dict[str, RunFolder] = {}
    base = tmp_path_factory.mktemp("runs")

    def finished(strategy: str) -> RunFolder:
        if strategy not in made:
            made[strategy] = run(base / strategy, strategy=strategy)
        return made[strategy]

    return finished


@pytest.mark.parametrize("strategy", ["scaffold", "pvi", "bayesian-admm"])
def test_a_method_that_is_interrupted_ends_as_if_nothing_had_happened(
    strategy: str, whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those with states on clients; all methods are in tests/strategies/test_parts_contract.py."""
    path = tmp_path / "run"
    interrupt(monkeypatch, path, lambda: run(path, strategy=strategy))
    resumed = run(tmp_path / "run", strategy=strategy, resume=True)
    assert digests(resumed) == digests(whole(strategy))
    assert len(set(digests(resumed))) == ROUNDS
    assert resumed.metrics() == whole(strategy).metrics()
    first, second = state_of(resumed).to_arrays(), state_of(whole(strategy)).to_arrays()
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])


def test_a_run_begins_from_another_runs_posterior(whole: Any, tmp_path: Path) -> None:
    """At a rate near 0 it stays there; another network's is refused before anything is trained."""
    first = whole("nwa")
    values: dict[str, Any] = {"strategy": "nwa", "rounds": 1, "learning_rate": 1e-12}
    other = shutil.copytree(first.path, tmp_path / "other")
    for given in (other, other / "posterior.npz"):
        second = run(tmp_path / f"from-{given.stem}", **values, initial_posterior=str(given))
        (before, _), (after, _) = first.posterior(), second.posterior()
        np.testing.assert_allclose(after.mean, before.mean, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(after.variance, before.variance, rtol=1e-4)
    shutil.rmtree(other)  # a run that has begun needs it no more
    begun = {**values, "rounds": 2, "resume": True}
    run(tmp_path / "from-other", **begun, initial_posterior=str(other))
    with pytest.raises(ConfigurationError, match="another network"):
        run(tmp_path / "c", **values, inference="deterministic", initial_posterior=str(first.path))
    with pytest.raises(ConfigurationError, match="initial-posterior is"):
        run(tmp_path / "d", **values, initial_posterior=str(tmp_path / "nothing"))
    with pytest.raises(ConfigurationError, match="initial-posterior"):
        run(tmp_path / "e", strategy="pvi", initial_posterior=str(first.path))
