"""What clients say of their own models: what is known and possible, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np

from bfl.experiments.results.judged_clients import judged_clients, means_over_clients


def table_of(*entries: dict[str, Any]) -> dict[str, dict[str, float]]:
    parts = [np.array([0, 1]), np.array([2, 3])]
    rounds = [{"per-client": [entry]} for entry in entries]
    return judged_clients(rounds, np.zeros(4, bool), parts)


def test_what_is_unknown_or_impossible_is_passed_over() -> None:
    table = table_of(
        {"client": 0, "meme-accuracy": 0.5, "test-examples": -7.5},
        {"client": 0, "meme-accuracy": 1e99, "personal-any-accuracy": 1.0},
        {"client": 1, "meme-accuracy": 0.25},
    )
    assert table["0"]["last-meme-accuracy"] == table["0"]["best-meme-accuracy"] == 0.5
    assert table["0"]["test-examples"] == 2, "the server knows what it has given out"
    assert not [name for name in means_over_clients(table) if "any" in name]
    assert table["1"]["last-meme-accuracy"] == 0.25
