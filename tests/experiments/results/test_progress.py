"""A run's progress: lines, a bar in a terminal, and who follows it from outside."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from bfl.experiments.results.progress import Follower, ProgressReport


def following() -> tuple[Follower, list[Any], io.StringIO]:
    """Return a follower, the rounds that it hears of, and what goes to its console."""
    rounds: list[Any] = []
    stream = io.StringIO()
    return Follower(Console(file=stream), lambda *heard: rounds.append(heard)), rounds, stream


def report(console: Console | None = None, follower: Follower | None = None) -> None:
    with ProgressReport(3, console, follower) as progress:
        progress.say("begins")
        progress.round(1, 2.5, {"accuracy": 0.5, "failures": 0, "other": 1.0})


def test_a_round_is_a_line() -> None:
    stream = io.StringIO()
    report(Console(file=stream, width=100))
    begins, line = stream.getvalue().splitlines()
    assert begins.endswith("s] begins")
    assert line.endswith("round 1/3  accuracy 0.5000  (2.5 s)")


def test_likelihood_and_divergence_of_training_are_shown_apart() -> None:
    """Their sum would hide the likelihood: here it rises while the training gets better."""
    stream = io.StringIO()
    with ProgressReport(2, Console(file=stream, width=200)) as progress:
        for number, (likelihood, divergence) in enumerate([(2.25, 8900.0), (0.5, 27900.0)], 1):
            measured = {
                "client/train-objective": likelihood + divergence,
                "client/train-negative-log-likelihood": likelihood,
                "client/train-divergence-per-example": divergence,
            }
            progress.round(number, 1.0, measured)
    first, second = stream.getvalue().splitlines()
    assert "train NLL 2.2500  train KL/N 8900.0000" in first
    assert "train NLL 0.5000  train KL/N 27900.0000" in second
    assert "27900.5" not in second


def test_a_metric_at_0_is_shown() -> None:
    stream = io.StringIO()
    with ProgressReport(3, Console(file=stream, width=100)) as progress:
        progress.round(1, 2.5, {"accuracy": 0.0, "expected-calibration-error": 0.0, "failures": 0})
        progress.round(2, 2.5, {"accuracy": None, "failures": 2})
    first, second = stream.getvalue().splitlines()
    assert first.endswith("round 1/3  accuracy 0.0000  ECE 0.0000  (2.5 s)")
    assert second.endswith("round 2/3  failures 2  (2.5 s)")


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    report(Console(file=stream, width=100, force_terminal=True))
    assert "1/3" in stream.getvalue()
    assert "\x1b[" in stream.getvalue()


def test_a_follower_hears_of_its_run_and_gets_its_lines() -> None:
    follower, rounds, stream = following()
    report(follower=follower)
    assert rounds == [(1, 3, 2.5, "accuracy 0.5000")]
    assert "begins" in stream.getvalue()
    report(follower=following()[0])
    assert len(rounds) == 1


def test_a_console_of_ones_own_has_no_follower() -> None:
    (follower, rounds, _), stream = following(), io.StringIO()
    report(Console(file=stream), follower)
    assert rounds == []
    assert stream.getvalue().count("begins") == 1
