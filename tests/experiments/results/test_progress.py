"""A run's progress: lines, a bar in a terminal, and who follows it from outside."""

import io
from typing import Any

import pytest
from rich.console import Console

from bfl.experiments.results.progress import ProgressReport


def printed(*rounds: dict[str, Any], terminal: bool = False) -> list[str]:
    """Return the lines of a run of some rounds."""
    stream = io.StringIO()
    console = Console(file=stream, width=200, force_terminal=terminal)
    with ProgressReport(len(rounds), console) as progress:
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


def test_likelihood_and_divergence_of_training_are_shown_apart() -> None:
    """Their sum would hide the likelihood: here it rises while the training gets better."""
    _, first, second = printed(
        *(
            {
                "client/train-objective": likelihood + divergence,
                "client/train-negative-log-likelihood": likelihood,
                "client/train-divergence-per-example": divergence,
            }
            for likelihood, divergence in [(2.25, 8900.0), (0.5, 27900.0)]
        )
    )
    assert "train NLL 2.2500  train KL/N 8900.0000" in first
    assert "train NLL 0.5000  train KL/N 27900.0000" in second
    assert "27900.5" not in second


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    rounds = [{"accuracy": a, "clients": 3, "refused": 1} for a in (0.5, 1.0)]
    said = "".join(printed(*rounds, terminal=True))
    assert "2/2" in said
    assert "\x1b[" in said
    assert "3 clients  1 refused" in said


def test_a_terminal_shows_who_has_replied_in_the_round_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    with ProgressReport(40, Console(file=stream, width=80, force_terminal=True)) as progress:
        for number in range(1, 20):
            progress.round(number, 2.5, {"accuracy": number / 20})
        progress.replied(10, {"clients": 7, "failures": 1, "refused": 0})
    assert "7/10 clients  1 failures" in stream.getvalue()
