"""Real runs with noise: their ε in the record, a budget that ends them, and no noise at all."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs_in_process import digests, make_run

import strategies.application.final_evaluation
from bfl.closing.base import SumsRound
from bfl.configuration import resolve
from bfl.engine.serial import SerialGrid
from bfl.errors import ConfigurationError, RunError
from bfl.experiments.results.figures import draw
from bfl.experiments.results.run_folder import RunFolder
from bfl.federation.privacy import gaussian_epsilon, sampled_gaussian_epsilon
from strategies import closing
from strategies.application.checks import check_privacy
from strategies.privacy import (
    LEDGER,
    SUMS_LEDGER,
    count_sums_room,
    privacy_account,
    read_begun_sums,
)

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


CLOSED: dict[str, Any] = {
    "example_privacy": "dp-sgd",
    "example_sampling_rate": 0.25,
    "closing": "bayesian-head+feature-density",
    "closing_noise_multiplier": 5.0,
    "calibration_share": 0.2,
    "rounds": 1,
}


def test_sums_of_a_closing_have_noise_and_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, totals = [], []
    measure, fold = SumsRound.measure, SumsRound.fold

    def keeping(following: SumsRound, known: Any, examples: Any) -> np.ndarray:
        own.append((following, measure(following, known, examples)))
        return own[-1][-1].copy()

    monkeypatch.setattr(SumsRound, "measure", keeping)
    monkeypatch.setattr(SumsRound, "fold", lambda *a: totals.append(a[2]) or fold(*a))
    folder = run(tmp_path / "run", **CLOSED)
    assert len(totals) == 2
    gradients = slice(1, 200)  # behind n
    of_first = (totals[0] - own[0][-1] - own[1][-1])[gradients]
    for number, total in enumerate(totals):
        unit, root = own[2 * number][0].deviations(10.0)
        noise = total - sum(vector for *_, vector in own[2 * number : 2 * number + 2])
        assert noise[unit == 0] == pytest.approx(0.0)
        drawn = noise[unit > 0] / (5.0 * 2**0.5 * unit[unit > 0])
        assert abs(drawn.mean()) < 5.0 / drawn.size**0.5
        assert abs(drawn.std() - 1.0) < 5.0 / drawn.size**0.5
        assert root == (5**0.5, 2**0.5)[number]
    after = [sampled_gaussian_epsilon(1.0, 0.25, 4, 1e-5, (5.0, n)) for n in (2, 4)]
    assert folder.rounds()[0]["example-epsilon"] == after[0]
    assert folder.metrics()["example-epsilon"] == after[0]
    ledger = folder.path / SUMS_LEDGER
    # The same sums with the same noise are no other release, and other code takes no others; those
    # of another closing are, and all that either may take counts.
    monkeypatch.setattr(closing, "code_digest", lambda: "another")
    for changes, lines in (({}, 2), ({"density_features": "last"}, 4)):
        (folder.path / "metrics.json").unlink()
        run(tmp_path / "run", **{**CLOSED, **changes}, resume=True)
        assert len(ledger.read_text().splitlines()) == lines
    of_other = (totals[2] - own[4][-1] - own[5][-1])[gradients]
    assert abs(np.corrcoef(of_first, of_other)[0, 1]) < 0.5
    assert folder.metrics()["example-epsilon"] == after[1]


def test_a_round_of_sums_is_counted_before_anybody_is_asked(tmp_path: Path) -> None:
    keys = {"dataset": "digits", **PLAIN, **CLOSED, "example_epsilon_budget": 7.0}
    configuration = resolve({name.replace("_", "-"): value for name, value in keys.items()})

    def begin(word: str, anew: bool = False) -> int:
        room = count_sums_room([*read_begun_sums(tmp_path), word])
        account = privacy_account(configuration, 2, tmp_path, 1, anew=False, sums=room)
        assert account is not None
        account.begin_sums(tmp_path, word, anew=anew)
        return count_sums_room(read_begun_sums(tmp_path))

    # All that a closing may take is counted from its first round on, and stays when it ends before.
    words = ("a 1/3", "a 1/3", "a 2/3", "b 1/1", "a 1/3")
    assert [begin(word) for word in words] == [3, 3, 3, 4, 4]
    assert [begin(word, anew=True) for word in ("b 1/1", "a 2/3", "a 1/3")] == [5, 6, 8]
    before = read_begun_sums(tmp_path)
    with pytest.raises(RunError, match="example-epsilon-budget"):
        begin("c 1/100")
    assert read_begun_sums(tmp_path) == before
    with pytest.raises(ConfigurationError, match="closing-noise-multiplier"):
        check_privacy(configuration.replace(closing_noise_multiplier=0.1))


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
