"""Live logs: each round once, no failure ends a run, and each tracker against its files."""

import struct
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
        self.last_round, self.failing = last, failing
        self.called: list[Any] = []

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
    assert {"none", "tensorboard"} <= set(trackers.names())
    with pytest.raises(ConfigurationError, match="tensorboard"):
        resolve({"log": "tensorbord"})


FIGURE = "learning-curve.png"
CONFIGURATION = {"rounds": 3, "seed": 7, "strategy": "conflation", "resume": False, "alpha": 0.5}


def lines(*numbers: int) -> list[dict[str, Any]]:
    return [{"round": n, "seconds": 1.0, "accuracy": n / 10, "sha": "x"} for n in numbers]


@pytest.fixture
def run(tmp_path: Path) -> TrackedRun:
    from matplotlib.figure import Figure

    folder = tmp_path / "runs" / "some-run"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("rounds = 3\n")
    Figure(figsize=(2, 1), dpi=50).savefig(folder / FIGURE)
    assert struct.unpack(">II", (folder / FIGURE).read_bytes()[16:24]) == (100, 50)
    return TrackedRun(folder, "some-run", "0" * 32, CONFIGURATION)


def log(run: TrackedRun, before: list[dict[str, Any]], *new: int, end: bool) -> None:
    """Log a run as it would be: with rounds made before, new ones, and perhaps its end."""
    with LiveLog(trackers.create("tensorboard"), run, before, pytest.fail) as live:
        for entry in lines(*new):
            live.round(entry)
        if end:
            live.end({"accuracy": 0.25}, [run.path / FIGURE])


def test_tensorboard(run: TrackedRun) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    # Rounds 1 to 3, of which 2 lost its checkpoint; and the finished run resumed once more.
    log(run, [], 1, 2, end=False)
    log(run, lines(1), 2, 3, end=True)
    log(run, lines(1, 2, 3), end=True)
    read = EventAccumulator(str(run.path / "tensorboard"), {"tensors": 0, "images": 0})
    read.Reload()

    def curve(tag: str) -> list[tuple[int, float]]:
        return [(e.step, round(e.tensor_proto.float_val[0], 6)) for e in read.Tensors(tag)]

    assert curve("accuracy") == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert curve("final/accuracy") == [(3, 0.25)]
    [image] = read.Images("figures/learning-curve")
    assert (image.step, image.width, image.height) == (3, 100, 50)
    assert image.encoded_image_string == (run.path / FIGURE).read_bytes()
    [text] = read.Tensors("configuration")
    assert b'strategy = "conflation"' in text.tensor_proto.string_val[0]
    started = read.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    assert b"conflation" in started


def test_tensorboard_can_be_read_while_the_run_goes_on(run: TrackedRun) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with LiveLog(trackers.create("tensorboard"), run, [], pytest.fail) as live:
        for entry in lines(1, 2):
            live.round(entry)
        read = EventAccumulator(str(run.path / "tensorboard"))
        read.Reload()
        assert [event.step for event in read.Tensors("accuracy")] == [1, 2]
