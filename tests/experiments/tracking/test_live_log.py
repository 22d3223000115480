"""Live logging: each round once, and no failure of a log ends a run."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bfl.configuration import resolve
from bfl.errors import ConfigurationError
from bfl.experiments.tracking import LiveLog, TrackedRun, Tracker, Tracking, trackers

RUN = TrackedRun(Path("nowhere"), "name", "0" * 32, {})


class Remembered(Tracking):
    def __init__(self, last: int = 0, failing: str = "") -> None:
        self.last, self.failing = last, failing
        self.called: list[Any] = []

    @property
    def last_round(self) -> int:
        return self.last

    def log_round(self, number: int, metrics: Mapping[str, float]) -> None:
        self._call("log_round", number, dict(metrics))

    def log_end(self, rounds: int, metrics: Mapping[str, float], figures: Sequence[Path]) -> None:
        self._call("log_end", rounds, dict(metrics), list(figures))

    def close(self, *, finished: bool) -> None:
        self._call("close", finished)

    def _call(self, name: str, *arguments: Any) -> None:
        if name == self.failing:
            raise ConnectionError("the server is gone\nsecond line")
        self.called.append((name, *arguments))


def tracker(tracking: Tracking | Exception) -> Tracker:
    class OneTracker(Tracker):
        def open(self, run: TrackedRun) -> Tracking:
            if isinstance(tracking, Exception):
                raise tracking
            return tracking

    OneTracker.name = "one"
    return OneTracker()


def test_numbers_of_rounds_are_logged_once_each_and_old_ones_made_up_for() -> None:
    tracking = Remembered(last=1)
    before = [{"round": 1, "accuracy": 0.1}, {"round": 2, "accuracy": 0.2}]
    with LiveLog(tracker(tracking), RUN, before, pytest.fail) as log:
        log.round({"round": 2, "accuracy": 0.9})
        log.round({"round": 3, "accuracy": 0.3, "sha": "x", "flag": True, "per-client": []})
        log.end({"accuracy": 0.4}, [Path("a.png")])
    assert tracking.called == [
        ("log_round", 2, {"accuracy": 0.2}),
        ("log_round", 3, {"accuracy": 0.3}),
        ("log_end", 3, {"accuracy": 0.4}, [Path("a.png")]),
        ("close", True),
    ]


@pytest.mark.parametrize("failing", ["log_round", "log_end", "close"])
def test_a_log_that_fails_is_told_once_and_the_run_goes_on(failing: str) -> None:
    told: list[str] = []
    with LiveLog(tracker(Remembered(failing=failing)), RUN, [], told.append) as log:
        for number in (1, 2, 3):
            log.round({"round": number, "accuracy": 0.1})
        log.end({"accuracy": 0.4}, [])
    opened = OSError("no host")
    with LiveLog(tracker(opened), RUN, [{"round": 1}], told.append) as log:
        log.round({"round": 2})
    assert [text.rpartition(": ")[2] for text in told] == ["the server is gone", "no host"]


def test_a_run_that_is_interrupted_is_not_logged_as_finished() -> None:
    tracking = Remembered()
    with pytest.raises(KeyboardInterrupt), LiveLog(tracker(tracking), RUN, [], pytest.fail):
        raise KeyboardInterrupt
    assert tracking.called == [("close", False)]


def test_a_missing_package_is_refused_and_the_word_says_how_to_get_it() -> None:
    class Absent(Tracker):
        package = "no_such_package"

        def open(self, run: TrackedRun) -> Tracking:
            raise NotImplementedError

    with pytest.raises(ConfigurationError, match="pip install no_such_package"):
        Absent().check()


def test_the_word_is_a_key_and_nothing_is_logged_by_default() -> None:
    assert resolve({}).tracker.name == "none"
    assert {"none", "tensorboard", "mlflow", "wandb"} <= set(trackers.names())
    with pytest.raises(ConfigurationError, match="tensorboard"):
        resolve({"log": "tensorbord"})


LOCAL = [tracker.name for tracker in trackers.classes() if tracker.package in ("", "tensorboard")]
ROUNDS = [{"round": number, "accuracy": 0.1 * number, "loss": math.nan} for number in (1, 2, 3)]


@pytest.mark.parametrize("name", LOCAL)
def test_a_log_is_taken_up_where_it_ended(name: str, tmp_path: Path) -> None:
    """By a run that is begun, interrupted and gone on with; nothing else in its folder changes."""
    (tmp_path / "rounds.jsonl").write_text("{}", encoding="utf-8")
    run = TrackedRun(tmp_path, "run", "0" * 32, {"rounds": 3, "strategy": "conflation"})
    tracker = trackers.create(name)
    tracker.check()
    with LiveLog(tracker, run, [], pytest.fail) as log:
        log.round(ROUNDS[0])
        log.round(ROUNDS[1])
    assert tracker.open(run).last_round in (0, 2)
    with LiveLog(tracker, run, ROUNDS[:2], pytest.fail) as log:
        log.round(ROUNDS[2])
        log.end({"accuracy": 0.4}, [])
    assert tracker.open(run).last_round in (0, 3)
    assert (tmp_path / "rounds.jsonl").read_text(encoding="utf-8") == "{}"
