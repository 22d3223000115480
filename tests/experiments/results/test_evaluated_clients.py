"""What clients say of their own models: what is known and possible, and nothing else."""

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pytest

from bfl.experiments.results.evaluated_clients import evaluated_clients, means_over_clients, told
from bfl.federation.client_metrics import MEME, PERSONAL

BOTH = (MEME, PERSONAL)


def table_of(
    *entries: dict[str, Any], due: Callable[[int], bool] = bool, models: Collection[str] = BOTH
) -> dict[str, dict[str, float]]:
    """Return what is known after rounds 1, 2, ... of which each entry is all that was said."""
    parts = [np.array([0, 1]), np.array([2, 3])]
    rounds = [{"round": i, "per-client": [entry]} for i, entry in enumerate(entries, start=1)]
    return evaluated_clients(rounds, lambda _: {"accuracy": 0.0}, parts, due=due, models=models)


HONEST = {
    "client": 0,
    "meme-accuracy": 0.5,
    "meme-brier-score": 0.6,
    "meme-expected-calibration-error": 0.1,
    "meme-negative-log-likelihood": 900.0,
    "meme-retention-area-accuracy-predictive-entropy": 0.5,
    "better-accuracy": 0.5,
    "test-examples": 10.0,
}


def test_what_is_unknown_is_passed_over() -> None:
    table = table_of(
        {"client": 0, "meme-accuracy": 0.5, "test-examples": 7.0},
        {"client": 0, "personal-any-accuracy": 9.0, "test-examples": -7.5},
        {"client": 1, "meme-accuracy": 0.25},
        {"client": 0, "meme-accuracy": 0.375},
    )
    assert (table["0"]["last-meme-accuracy"], table["0"]["best-meme-accuracy"]) == (0.375, 0.5)
    assert table["0"]["test-examples"] == 2, "the server knows what it has given out"
    assert not [name for name in means_over_clients(table) if "any" in name]
    assert table["1"]["last-meme-accuracy"] == 0.25


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("meme-accuracy", 1.5),
        ("meme-brier-score", -1e99),
        ("meme-brier-score", 2.1),
        ("meme-expected-calibration-error", -5.0),
        ("meme-negative-log-likelihood", -0.1),
        ("meme-negative-log-likelihood", math.inf),
        ("meme-retention-area-accuracy-predictive-entropy", 1e99),
        ("better-accuracy", 1.5),
        ("test-examples", -7.0),
        ("test-examples", 7.5),
        ("test-examples", math.nan),
    ],
)
def test_who_says_what_cannot_be_is_left_out_and_named(name: str, value: float) -> None:
    honest = {**HONEST, "client": 2}
    alone = means_over_clients(table_of(honest))
    better = {"meme-accuracy": 1.0, "better-accuracy": 1.0}
    table = table_of(honest, {**HONEST, **better, name: value}, HONEST)
    assert means_over_clients(table) == alone
    lies = {name: value}
    if name == "meme-accuracy":
        lies["better-accuracy"] = 1.0  # which is not the greatest then
    expected = {"test-examples": 2, "global-accuracy": 0.0}
    expected |= {f"impossible-{lie}": said for lie, said in lies.items()}
    assert table["0"] == pytest.approx(expected, nan_ok=True)
    named = ", ".join(f"{lie} {said:g}" for lie, said in lies.items())
    assert f"left out for impossible reports: client 0 ({named})" in told(table)
    assert "left out" not in told(table_of(honest))


def test_a_number_of_test_examples_that_cannot_be_is_nowhere_kept() -> None:
    rounds = [{"round": 1, "per-client": [{**HONEST, "test-examples": -7.0}]}]
    assert evaluated_clients(rounds, None, None, due=bool, models=BOTH) == {
        "0": {"impossible-test-examples": -7.0}
    }


TWO = {"client": 0, "meme-accuracy": 0.2, "personal-accuracy": 0.3, "better-accuracy": 0.3}


@pytest.mark.parametrize("better", [1.0, 0.2, 0.31])
def test_the_better_accuracy_is_the_greater_of_both(better: float) -> None:
    assert table_of(TWO)["0"]["best-better-accuracy"] == 0.3
    row = table_of({**TWO, "better-accuracy": better})["0"]
    assert row == {"test-examples": 2, "global-accuracy": 0.0, "impossible-better-accuracy": better}
    alone = {"client": 0, "better-accuracy": 0.9}
    assert "best-better-accuracy" not in table_of(alone)["0"]


def test_what_a_client_says_of_a_round_in_which_none_is_due_is_passed_over() -> None:
    boast = {"client": 0, "meme-accuracy": 1.0, "personal-accuracy": 1.0, "better-accuracy": 1.0}
    table = table_of(boast, TWO, due=lambda number: number == 2)
    assert table["0"] == table_of(TWO)["0"]
    assert table_of(boast, due=lambda number: number == 2)["0"] == {
        "test-examples": 2,
        "global-accuracy": 0.0,
    }


def test_what_a_client_says_of_a_model_that_the_run_does_not_have_is_passed_over() -> None:
    said = means_over_clients(table_of({**TWO, "better-accuracy": 1.0}, models=(MEME,)))
    assert said == {
        "clients-global-accuracy": 0.0,
        "clients-last-meme-accuracy": 0.2,
        "clients-best-meme-accuracy": 0.2,
    }
    alone = means_over_clients(table_of({**TWO, "meme-accuracy": 0.0}, models=(PERSONAL,)))
    assert not [name for name in alone if "meme" in name]
    assert alone["clients-best-better-accuracy"] == 0.3


def test_rounding_makes_nobody_a_liar() -> None:
    said = {"meme-expected-calibration-error": 1.0 + 1e-15, "meme-negative-log-likelihood": -1e-17}
    table = table_of({**HONEST, **said})
    assert table["0"]["last-meme-negative-log-likelihood"] == -1e-17
