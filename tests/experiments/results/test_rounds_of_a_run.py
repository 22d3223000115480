"""What is made of a run's rounds: clients' numbers, lines, warnings."""

import io
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from bfl import printing
from bfl.experiments.results.clients import (
    baseline_rows,
    baseline_verdict,
    evaluated_clients,
    means_over_clients,
    own_rows,
)
from bfl.experiments.results.monitoring import collapse, error_auroc, warn_of_collapse
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.results.table import ProgressReport
from bfl.federation.client_metrics import MEME, PERSONAL


def table_of(
    *entries: dict[str, Any],
    due: Callable[[int], bool] = bool,
    models: Collection[str] = (MEME, PERSONAL),
) -> dict[str, dict[str, float]]:
    parts = [np.array([0, 1]), np.array([2, 3])]
    rounds = [{"round": i, "per-client": [entry]} for i, entry in enumerate(entries, start=1)]
    return evaluated_clients(rounds, lambda _: {"accuracy": 0.0}, parts, due=due, models=models)


def test_the_last_and_the_best_of_what_clients_measure_are_kept() -> None:
    table = table_of(
        {"client": 0, "meme-accuracy": 0.5, "test-examples": 7.0},
        {"client": 0, "personal-any-accuracy": 9.0},
        {"client": 1, "meme-accuracy": 0.25},
        {"client": 0, "meme-accuracy": 0.375},
    )
    assert (table["0"]["last-meme-accuracy"], table["0"]["best-meme-accuracy"]) == (0.375, 0.5)
    assert table["0"]["test-examples"] == 2, "the server knows what it has given out"
    means = means_over_clients(table)
    assert not [name for name in means if "any" in name]
    assert means["clients-best-meme-accuracy"] == 0.375


TWO = {"client": 0, "meme-accuracy": 0.2, "personal-accuracy": 0.3, "better-accuracy": 0.3}


def test_rounds_in_which_none_is_due_and_models_that_a_run_lacks_are_passed_over() -> None:
    boast = {"client": 0, "meme-accuracy": 1.0, "personal-accuracy": 1.0, "better-accuracy": 1.0}
    assert table_of(boast, TWO, due=lambda number: number == 2) == table_of(TWO)
    assert means_over_clients(table_of(TWO, models=(MEME,))) == {
        "clients-global-accuracy": 0.0,
        "clients-last-meme-accuracy": 0.2,
        "clients-best-meme-accuracy": 0.2,
    }
    assert not [name for name in table_of(TWO, models=(PERSONAL,))["0"] if "meme" in name]


def test_the_verdict_on_federating_follows_the_intervals() -> None:
    def own(low: float, high: float) -> dict[str, Any]:
        return {"accuracy": 0.5, "difference": (low + high) / 2, "difference-interval": [low, high]}

    found = {
        "federation": {"accuracy": 0.6, "interval": [0.55, 0.65], "examples": 400},
        "central": own(-0.2, -0.1),
        "local": {"Bergen": own(0.1, 0.2), "Oslo": own(-0.2, -0.1), "Genf": own(0.0, 0.2)},
    }
    found["local"]["Chur"] = {"accuracy": 0.5}
    found["local"]["Bergen"] = {**own(-0.2, -0.1), "own": {**own(0.1, 0.2), "examples": 40}}
    found["own"] = {**own(0.0, 0.1), "examples": 40}
    assert "right for 22 of 40 test examples" in baseline_verdict(found)
    verdicts = [row["shown"].partition(":")[0].split()[-1] for row in own_rows(found)]
    assert verdicts == ["better", "worse", "decided", "nothing", "worse", "decided"]
    assert "(1 of 4 clients have tested both)" in baseline_verdict(found)
    beside = "below about 0.0500. Beside all data in one place, the federation is worse"
    assert beside in baseline_verdict(found)  # 0.05, as the gain has not shown
    assert own_rows(found)[1]["model"] == "Oslo alone on the server's rows"
    for high, decides in ((-0.25, True), (0.25, False)):
        loss = {"nll-difference": -0.5, "nll-difference-interval": [-1.0, high]}
        assert ("NLL" in baseline_verdict({**found, "own": found["own"] | loss})) == decides
    found["local"]["Bergen"]["own"]["only-class"] = "ill"
    assert own_rows(found)[0]["shown"] == "nothing: all are “ill”"
    assert "Nothing" in baseline_verdict(found)
    found["own-of-several-classes"] = {**own(0.1, 0.3), "examples": 20}
    assert "right for 14 of 20 test examples (without Bergen" in baseline_verdict(found)
    assert baseline_rows(found)[0]["accuracy"] == "0.600 (0.550 to 0.650)"
    # A greater error is worse.
    error = {"root-mean-squared-error": 2.0}
    less = {**own(-0.2, -0.1), **error}
    found = {"federation": error, "local": {"A": less}, "central": less}
    assert all("is better" in row["shown"] for row in own_rows(found))
    del found["local"]
    assert "RMSE of 1.85, the model of all" in baseline_verdict(found)


def printed(*rounds: dict[str, Any], verbose: bool = False) -> list[str]:
    stream = io.StringIO()
    with ProgressReport(len(rounds), Console(file=stream, width=200), verbose=verbose) as progress:
        progress.say("begins")
        for number, measured in enumerate(rounds, start=1):
            progress.round(number, 2.5, measured)
    return stream.getvalue().splitlines()


def test_a_round_is_a_line_of_what_it_has() -> None:
    begins, first, second = printed(
        {"accuracy": 0.0, "expected-calibration-error": 0.0, "failures": 0, "other": 1.0},
        {"accuracy": None, "failures": 2},
    )
    assert begins.endswith("s] begins")
    assert first.endswith("round 1/2  accuracy 0.0000  ECE 0.0000  (2.5 s)")
    assert second.endswith("round 2/2  failures 2  (2.5 s)")
    measured = {"mean-epistemic": 0.25, "client/train-divergence-per-example": 8900.0}
    for verbose, more in ((False, ""), (True, "  train KL/N 8900.0000")):
        [_, line] = printed(measured, verbose=verbose)
        assert line.endswith(f"epistemic 0.2500{more}  (2.5 s)")
    [of_points] = printed({"accuracy": 0.5, "mean-epistemic": 0.0})[1:]
    assert of_points.endswith("accuracy 0.5000  (2.5 s)")


def test_a_terminal_gets_a_bar_and_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    with ProgressReport(40, Console(file=stream, width=80, force_terminal=True)) as progress:
        for number in range(1, 20):
            progress.round(number, 2.5, {"accuracy": number / 20})
        printing.doing("round 20")
        printing.detail("7 of 10")
    said = stream.getvalue()
    for part in ("19/40", "\x1b[", "round 20: 7 of 10"):
        assert part in said


HEALTHY = {"mean-epistemic": 0.01, "mean-aleatoric": 0.2, "fraction-at-scale-floor": 0.1}


@pytest.mark.parametrize(
    ("numbers", "samples", "collapsed"),
    [
        (HEALTHY, 5, False),
        (HEALTHY | {"mean-epistemic": 0.0}, 2, True),
        (HEALTHY | {"mean-epistemic": 0.0}, 1, False),  # one sample never has any
        (HEALTHY | {"mean-epistemic": 2.1e-3}, 5, False),
        (HEALTHY | {"mean-epistemic": 1.9e-3}, 5, True),
        (HEALTHY | {"fraction-at-scale-floor": 0.5}, 5, False),
        (HEALTHY | {"fraction-at-scale-floor": 0.51}, 1, True),
        ({"accuracy": 0.5}, 20, False),  # what was not measured is not judged
    ],
)
def test_criterion(numbers, samples, collapsed):
    assert (collapse(numbers, samples) is not None) == collapsed


def test_a_run_is_warned_once_also_when_it_is_resumed(tmp_path):
    folder, said = RunFolder.create(tmp_path, "run", {}, {}), []
    collapsed = {**HEALTHY, "fraction-at-scale-floor": 0.9}
    for number, numbers in enumerate((HEALTHY, collapsed, collapsed), start=1):
        warn_of_collapse(folder, numbers, 5, f"round {number}", said.append)
    assert len(said) == len(folder.warnings()) == 1
    assert said[0].startswith("warning, round 2: ")
    assert folder.warnings()[0].startswith("round 2: ")


def test_what_tells_errors_no_better_than_chance_is_of_no_use() -> None:
    rng = np.random.default_rng(0)
    wrong = np.arange(400) < 60
    blind, seeing = rng.random(400), rng.random(400) + 0.5 * wrong
    for epistemic, useless in ((blind, True), (seeing, False), (-seeing, True)):
        assert (collapse(HEALTHY | error_auroc(epistemic, wrong), 5) is not None) == useless
    found = error_auroc(seeing, wrong)
    pairs = (seeing[wrong][:, None] > seeing[~wrong]).mean()
    assert found["epistemic-error-auroc"] == pytest.approx(pairs)
    aurocs = [error_auroc(rng.random(400), wrong)["epistemic-error-auroc"] for _ in range(400)]
    assert np.std(aurocs) == pytest.approx(found["chance-deviation"], rel=0.15)
    assert error_auroc(blind, np.arange(400) < 4) == {}
