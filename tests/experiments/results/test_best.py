"""The best round so far, and when no better one is waited for: functions of the rounds' lines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bfl.errors import DataError
from bfl.evaluation.metrics import metrics
from bfl.experiments.results.best import Best, BestPosterior, best_of, out_of_patience
from bfl.experiments.results.run_folder import BEST_POSTERIOR, RunFolder
from bfl.posteriors import Manifest, Posterior

ACCURACY = metrics.create("accuracy")
LIKELIHOOD = metrics.create("nll")


def rounds(*values: float | None, metric: str = "accuracy") -> list[dict[str, Any]]:
    """Return the lines of rounds with some values of a validation metric; None: not measured."""
    name = f"validation-{metric}"
    return [
        {"round": number, metric: -number, **({} if value is None else {name: value})}
        for number, value in enumerate(values, start=1)
    ]


def test_the_metric_says_which_way_is_up() -> None:
    values = (0.2, 0.9, 0.1)
    assert best_of(rounds(*values), ACCURACY) == Best("validation-accuracy", 2, 0.9)
    likelihood = "negative-log-likelihood"
    assert best_of(rounds(*values, metric=likelihood), LIKELIHOOD) == Best(
        "validation-negative-log-likelihood", 3, 0.1
    )


def test_of_equals_the_first_is_best_and_what_is_not_finite_never_is() -> None:
    best = best_of(rounds(None, 0.5, 0.5, math.nan, math.inf), ACCURACY)
    assert best is not None
    assert best.round == 2
    assert best_of(rounds(None, math.nan), ACCURACY) is None


@pytest.mark.parametrize(
    ("values", "patience", "stops"),
    [
        ((), 1, False),
        ((0.1,), 1, False),
        ((0.2, 0.1), 1, True),
        ((0.2, 0.1), 2, False),
        ((0.2, 0.2, 0.2), 2, True),
        ((0.1, 0.2, 0.3, 0.2), 2, False),
        ((math.nan, math.nan), 2, True),
        ((0.3, 0.1, 0.1, 0.1, 0.1), 0, False),
    ],
)
def test_stops_after_rounds_without_a_better_one(
    values: tuple[float, ...], patience: int, stops: bool
) -> None:
    assert out_of_patience(rounds(*values), ACCURACY, patience) is stops


def test_the_best_posterior_stays_beside_later_ones(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    manifest = Manifest(())
    kept = BestPosterior(folder, manifest, ACCURACY, patience=2, rounds=5)
    empty = np.zeros(0, np.float32)
    with pytest.raises(DataError, match=r"best-posterior\.npz"):
        folder.best()
    stopped = []
    for entry in rounds(0.1, 0.7, 0.7, 0.2):
        folder.append_round(entry)
        stopped.append(kept.look(Posterior(empty, empty, np.float32([entry["round"]]))))
    assert stopped == [False, False, False, True]
    assert folder.best() == {"metric": "validation-accuracy", "round": 2, "value": 0.7}
    with np.load(tmp_path / BEST_POSTERIOR) as arrays:
        np.testing.assert_array_equal(arrays["point"], [2])
    assert (
        kept.told()
        == "stopped early, after round 4 of 5; best round by validation-accuracy: 2 (0.7000)"
    )
