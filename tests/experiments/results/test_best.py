"""The best round so far, and when no better one is waited for: functions of the rounds' lines."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bfl.errors import DataError
from bfl.experiments.results.best import Best, BestPosterior, best_of, out_of_patience
from bfl.experiments.results.run_folder import BEST_POSTERIOR, RunFolder
from bfl.posteriors import Manifest, Posterior

EMPTY = np.zeros(0, np.float32)

ACCURACY, LIKELIHOOD = "accuracy", "negative-log-likelihood"


def posterior_of(server_round: int) -> Posterior:
    return Posterior(EMPTY, EMPTY, np.full(1, server_round, np.float32))


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
    with pytest.raises(DataError, match=r"best-posterior\.npz"):
        folder.best()
    stopped = []
    for entry in rounds(0.1, 0.7, 0.7, 0.2):
        folder.append_round(entry)
        stopped.append(kept.look(posterior_of(entry["round"])))
    assert stopped == [False, False, False, True]
    assert folder.best() == {"metric": "validation-accuracy", "round": 2, "value": 0.7}
    with np.load(tmp_path / BEST_POSTERIOR) as arrays:
        np.testing.assert_array_equal(arrays["point"], [2])
    assert kept.told().startswith("stopped early, after round 4 of 5")


def gone_on_with(path: Path, written: tuple[int, float] | None, *left: float) -> BestPosterior:
    """Return what keeps the best posterior of a run that has gone back to the rounds left.

    Args:
        path: The run's folder.
        written: The round and the value of the best posterior in the folder.
        left: The accuracies of the rounds left, the last of which has the checkpoint.
    """
    folder = RunFolder(path)
    if written:
        number, value = written
        best = {"metric": "validation-accuracy", "round": number, "value": value}
        folder.write_posterior(posterior_of(number), Manifest(()), BEST_POSTERIOR, **best)
    for entry in rounds(*left):
        folder.append_round(entry)
    kept = BestPosterior(folder, Manifest(()), ACCURACY, patience=0, rounds=5)
    kept.go_on(posterior_of(len(left)))
    return kept


@pytest.mark.parametrize(
    ("written", "left"),
    [
        (None, (0.1, 0.7)),  # killed between the checkpoint and the look at it
        ((1, 0.1), (0.1, 0.7)),
        ((2, 0.7), (0.1, 0.7)),
        ((1, 0.8), (0.8, 0.7)),
        ((3, 0.9), (0.1, 0.7)),  # its round is dropped, and the checkpoint's is the best then
        ((2, 0.9), (0.1, 0.7)),  # as it was before the round was made again
    ],
)
def test_a_resume_finds_the_best_posterior_of_the_rounds_that_are_left(
    written: tuple[int, float] | None, left: tuple[float, ...], tmp_path: Path
) -> None:
    kept = gone_on_with(tmp_path, written, *left)
    best = best_of(kept.folder.rounds(), ACCURACY)
    assert best is not None
    assert Best(**kept.folder.best()) == best
    with kept.folder.reading_arrays(BEST_POSTERIOR) as arrays:
        assert arrays["point"] == [best.round]
    assert kept.told() == f"best round by validation-accuracy: {best.round} ({best.value:.4f})"


@pytest.mark.parametrize("written", [(3, 0.9), (1, 0.8)])
def test_the_best_posterior_of_a_dropped_round_goes_and_a_lost_one_is_told(
    written: tuple[int, float], tmp_path: Path
) -> None:
    kept = gone_on_with(tmp_path, written, 0.7, 0.1)
    assert not kept.folder.holds(BEST_POSTERIOR)
    assert kept.told().endswith("1 (0.7000); its best-posterior.npz is missing")
    kept.folder.append_round({**rounds(0.9)[0], "round": 3})
    kept.look(posterior_of(3))
    assert kept.folder.best()["round"] == 3
    assert kept.told() == "best round by validation-accuracy: 3 (0.9000)"


def test_a_run_that_begins_anew_has_no_best_posterior(tmp_path: Path) -> None:
    assert not gone_on_with(tmp_path, (2, 0.9)).folder.holds(BEST_POSTERIOR)


def test_a_best_posterior_that_cannot_be_read_is_made_again_or_dropped(tmp_path: Path) -> None:
    for name, values in (("made", (0.1, 0.7)), ("dropped", (0.7, math.nan))):
        (tmp_path / name).mkdir()
        (tmp_path / name / BEST_POSTERIOR).write_bytes(b"damaged")
        assert gone_on_with(tmp_path / name, None, *values).folder.holds(BEST_POSTERIOR) == (
            name == "made"
        )
