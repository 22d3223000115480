"""Real runs with noise: their ε in the record, a budget that ends them, and no noise at all."""

from pathlib import Path
from typing import Any

import pytest
from runs_in_process import digests, make_run

import strategies.application.final_evaluation
from bfl.engine.serial import SerialGrid
from bfl.experiments.results.figures import draw
from bfl.experiments.results.run_folder import RunFolder
from bfl.federation.privacy import gaussian_epsilon
from strategies.privacy import LEDGER

PLAIN: dict[str, Any] = {
    "model": "mlp",
    "strategy": "aalv",
    "weighting": "equal",
    "rounds": 3,
    "local-epochs": 1,
    "train-examples": 100,
    "test-examples": 20,
    "mc-samples": 1,
    "evaluate-mc-samples": 1,
    "evaluate-every": 0,
    "round-retries": 0,
}

NOISY: dict[str, Any] = {"outgoing": "clip+noise", "noise_multiplier": 4.0, "clip_norm": 0.1}

pytestmark = pytest.mark.slow


class DeployedGrid(SerialGrid):
    """Nodes that say of themselves what SuperNodes say: that they are in no simulation."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        for context in self._contexts.values():
            del context.node_config["simulation"]


def run(folder: Path, **changes: Any) -> RunFolder:
    return make_run(PLAIN, 2, folder, **changes)


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes most of so small a run's time."""
    monkeypatch.setattr(strategies.application.final_evaluation, "draw_all", lambda folder: [])


def test_epsilon_stands_in_the_record_and_the_budget_ends_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = gaussian_epsilon(2.0, 2, 1e-5) + 1e-6
    folder = run(tmp_path / "private", **NOISY, epsilon_budget=budget)
    found = [entry["epsilon"] for entry in folder.rounds()]
    assert found == pytest.approx([gaussian_epsilon(2.0, n, 1e-5) for n in (1, 2)])
    assert folder.metrics()["epsilon"] == found[-1] <= budget
    told = "stopped before round 3: it would lead to ε = "
    assert told in capsys.readouterr().out
    assert [told in line for line in folder.warnings()] == [True]
    for entry in folder.rounds():
        assert not any(name.startswith("client/") for name in entry)
        assert {name for client in entry["per-client"] for name in client} == {"client", "weight"}
        assert entry["num-examples"] == "hidden"
    assert folder.read_json("run.json:partition").keys() == {"sha256", "whole-sha256"}
    assert draw("partition", folder) is None
    # A resume finds the budget spent, and says so once more.
    assert digests(run(tmp_path / "private", **NOISY, epsilon_budget=budget, resume=True)) == (
        digests(folder)
    )
    assert [told in line for line in folder.warnings()] == [True]
    # The same seed gives the same noise, by whomever; who adds it changes the result, and not ε.
    [by_server] = run(tmp_path / "server", **NOISY, noise_at="server", rounds=1).rounds()
    assert by_server["epsilon"] == found[0]
    assert not (tmp_path / "server" / LEDGER).exists()
    [again] = run(tmp_path / "again", **NOISY, rounds=1).rounds()
    assert again["posterior-sha256"] == digests(folder)[0] != by_server["posterior-sha256"]
    # Not so with nodes that are in no simulation: the server's noise is then another one each time.
    monkeypatch.setattr("bfl.engine.serial.SerialGrid", DeployedGrid)
    [anew] = run(tmp_path / "anew", **NOISY, noise_at="server", rounds=1).rounds()
    assert anew["posterior-sha256"] != by_server["posterior-sha256"]
    assert (tmp_path / "anew" / LEDGER).read_text() == "1\n"


def test_without_noise_and_below_the_bound_the_bits_are_those_of_any_run(tmp_path: Path) -> None:
    plain = run(tmp_path / "plain", rounds=1)
    silent = run(
        tmp_path / "silent", rounds=1, outgoing="clip+noise", noise_multiplier=0.0, clip_norm=1e6
    )
    assert digests(silent) == digests(plain)
    assert silent.rounds()[0].keys() == plain.rounds()[0].keys()
    nothing = {"example_noise_multiplier": 0.0, "example_clip_norm": 0.0}
    silent = run(tmp_path / "examples", rounds=1, example_privacy="dp-sgd", **nothing)
    assert digests(silent) == digests(plain)
    assert silent.rounds()[0].keys() == plain.rounds()[0].keys()
