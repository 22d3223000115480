"""What clients say of their own models: what is known and possible, and nothing else."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from bfl.experiments.results.judged_clients import judged_clients, means_over_clients, told


def table_of(*entries: dict[str, Any]) -> dict[str, dict[str, float]]:
    parts = [np.array([0, 1]), np.array([2, 3])]
    rounds = [{"per-client": [entry]} for entry in entries]
    return judged_clients(rounds, np.zeros(4, bool), parts)


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
    )
    assert table["0"]["last-meme-accuracy"] == table["0"]["best-meme-accuracy"] == 0.5
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
    table = table_of(honest, {**HONEST, "meme-accuracy": 1.0, name: value}, HONEST)
    assert means_over_clients(table) == alone
    expected = {"test-examples": 2, "global-accuracy": 0.0, f"impossible-{name}": value}
    assert table["0"] == pytest.approx(expected, nan_ok=True)
    assert f"left out, having said what cannot be: client 0 ({name} {value:g})" in told(table)
    assert "left out" not in told(table_of(honest))


def test_a_number_of_test_examples_that_cannot_be_is_nowhere_kept() -> None:
    rounds = [{"per-client": [{**HONEST, "test-examples": -7.0}]}]
    assert judged_clients(rounds, None, None) == {"0": {"impossible-test-examples": -7.0}}


def test_rounding_makes_nobody_a_liar() -> None:
    said = {"meme-expected-calibration-error": 1.0 + 1e-15, "meme-negative-log-likelihood": -1e-17}
    table = table_of({**HONEST, **said})
    assert table["0"]["last-meme-negative-log-likelihood"] == -1e-17
