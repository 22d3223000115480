"""What every tracker keeps to that needs nothing but the run's folder."""

import math
from pathlib import Path

import pytest

from bfl.experiments.tracking import LiveLog, TrackedRun, trackers

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
