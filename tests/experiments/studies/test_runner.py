"""All runs are made, whatever becomes of one: skipped, resumed, failed, interrupted; and shown."""

import subprocess
import sys
from pathlib import Path

import pytest
from small_study import PretendingEngine, finish_run, planned, quiet_console, scaled_study

from bfl.errors import RunError
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.studies.folder import StudyFolder, state
from bfl.experiments.studies.gathering import begin
from bfl.experiments.studies.runner import GO_ON, Estimate, Outcome, Runner
from bfl.experiments.studies.study import Study

FIRST = "flipout-ws_iid_seed-0"
SECOND = "flipout-nwa_iid_seed-0"


class Small:
    """The small study in a folder."""

    def __init__(self, folder: Path, scale: str = "") -> None:
        self.scaled: Study = scaled_study(folder / "files", scale)
        self.folder = StudyFolder(folder / self.scaled.folder_name)
        begin(self.folder, self.scaled, {})
        self.runs = planned(self.folder, self.scaled)
        self.names = [run.name for run in self.runs]
        self.shown = ""

    def make(self, engine: PretendingEngine, *, terminal: bool = False) -> Outcome:
        console, stream = quiet_console(terminal=terminal)
        try:
            return Runner(self.folder, self.runs, lambda: engine, console=console).make_all()
        finally:
            self.shown = stream.getvalue()


@pytest.fixture
def small(tmp_path: Path) -> Small:
    return Small(tmp_path)


def test_all_runs_are_made_on_one_engine_and_none_twice(small: Small) -> None:
    engine = PretendingEngine()
    outcome = small.make(engine)
    assert engine.asked == [(name, 3) for name in small.names]
    assert (engine.started, engine.ended) == (1, 1)
    assert outcome == Outcome(made=small.names)
    for place, name in enumerate(small.names, start=1):
        assert f"{place}/8 {name}: begins" in small.shown
        assert f"{place}/8 {name}: accuracy 0.5000  NLL 1.0000" in small.shown
        # What a run says itself is in its folder, not on the terminal.
        log = (small.folder.run(name).path / "log.txt").read_text(encoding="utf-8")
        assert f"this is {name}" in log
        assert "round 4/4" in log
    assert "this is" not in small.shown
    assert "left" in small.shown
    engine = PretendingEngine()
    assert small.make(engine) == Outcome(skipped=small.names)
    assert (engine.started, engine.asked) == (0, []), "nothing is started for what is done"


def test_a_run_that_has_begun_goes_on(small: Small) -> None:
    def stop(name: str, number: int) -> None:
        if (name, number) == (SECOND, 3):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small.make(PretendingEngine(stop))
    assert "1 of 8 runs are done" in small.shown
    assert state(small.folder, SECOND, 4) == "begun, round 2 of 4"
    assert not (small.folder.path / "failures").exists()
    engine = PretendingEngine()
    outcome = small.make(engine)
    assert outcome.skipped == [FIRST]
    assert engine.asked[0] == (SECOND, 3)
    assert f"2/8 {SECOND}: resumes after round 2" in small.shown
    rounds = small.folder.run(SECOND).rounds()
    assert [entry["round"] for entry in rounds] == [1, 2, 3, 4]


def test_an_interruption_has_the_server_stop_waiting(small: Small) -> None:
    def stop(name: str, number: int) -> None:
        raise KeyboardInterrupt

    engine = PretendingEngine(stop)
    with pytest.raises(KeyboardInterrupt) as interrupt:
        small.make(engine)
    assert interrupt.value.__notes__ == [GO_ON]
    assert engine.ended == 1
    [interrupted] = engine.runs
    assert interrupted.ended
    another = PretendingEngine()
    small.make(another)
    assert not any(run.ended for run in another.runs)
    assert interrupted.ended, "the next run does not revive the threads of the last"


def test_an_engine_that_has_died_after_a_run_is_not_used_again(small: Small) -> None:
    engine = PretendingEngine()
    engine.died_after = small.names[2]
    made: list[PretendingEngine] = []

    def start() -> PretendingEngine:
        made.append(engine if not made else PretendingEngine())
        return made[-1]

    console, _ = quiet_console()
    outcome = Runner(small.folder, small.runs, start, console=console).make_all()
    assert outcome == Outcome(made=small.names)
    assert [len(engine.asked) for engine in made] == [3, 5]
    assert [(engine.started, engine.ended) for engine in made] == [(1, 1), (1, 1)]


def test_a_failure_is_recorded_and_the_others_go_on(small: Small) -> None:
    def fail(name: str, number: int) -> None:
        if name == SECOND:
            raise RunError("the round failed\nwith details") if number == 2 else ValueError("x")

    engine = PretendingEngine(fail)
    outcome = small.make(engine)
    assert list(outcome.failed) == [SECOND]
    assert len(outcome.made) == 7
    assert (engine.started, engine.ended) == (2, 2), "a failure leaves the engine in no known state"
    text = small.folder.failure_file(SECOND).read_text(encoding="utf-8")
    assert "Traceback" in text
    assert state(small.folder, SECOND, 4) == "failed"
    small.make(PretendingEngine())
    assert not small.folder.failure_file(SECOND).exists()


@pytest.fixture
def one_made(small: Small) -> Small:
    """The small study, of which the first run is over."""
    finish_run(small.folder, FIRST, small.runs[0].values, accuracy=0.5)
    return small


def damage(folder: RunFolder) -> None:
    """Write garbage before the last line of a run's rounds."""
    path = folder.path / "rounds.jsonl"
    path.write_text("garbage\n" + path.read_text(encoding="utf-8"), encoding="utf-8")


def test_a_run_whose_records_are_damaged_has_failed_and_the_others_go_on(one_made: Small) -> None:
    damage(one_made.folder.run(FIRST))
    RunFolder.create(one_made.folder.runs, SECOND, one_made.runs[1].configuration.values, {})
    one_made.folder.run(SECOND).append_round({"round": 1, "seconds": 1.0})
    damage(one_made.folder.run(SECOND))
    for _ in range(2):
        outcome = one_made.make(PretendingEngine())
        assert list(outcome.failed) == [FIRST, SECOND]
        for name, reason in outcome.failed.items():
            assert f"{name}/rounds.jsonl, line 1: not a round" in reason
            assert reason in one_made.folder.failure_file(name).read_text(encoding="utf-8")
    assert outcome.skipped == one_made.names[2:]
    assert f"1/8 {FIRST}: failed: " in one_made.shown
    # The rounds of a run whose result is kept are not read.
    damage(one_made.folder.run(one_made.names[2]))
    assert one_made.make(PretendingEngine()).skipped == one_made.names[2:]


def test_a_run_that_is_damaged_meanwhile_fails_alone(small: Small) -> None:
    def spoil(name: str, number: int) -> None:
        if (name, number) == (FIRST, 4):
            run = RunFolder.create(
                small.folder.runs, SECOND, small.runs[1].configuration.values, {}
            )
            (run.path / "checkpoints").mkdir()
            run.append_round({"round": 1})
            damage(run)

    outcome = small.make(PretendingEngine(spoil))
    assert list(outcome.failed) == [SECOND]
    assert outcome.made == [FIRST, *small.names[2:]]


def test_an_engine_that_returns_without_a_result_has_failed(small: Small) -> None:
    class Idle(PretendingEngine):
        def run(self, *_: object) -> None:
            """Do nothing."""

    outcome = small.make(Idle())
    assert list(outcome.failed) == small.names
    assert set(outcome.failed.values()) == {
        "the engine has returned, but the run has left no metrics"
    }


CLAIM = """
import sys
from pathlib import Path
from bfl.experiments.studies.folder import StudyFolder
with StudyFolder(Path(sys.argv[1])).claimed(sys.argv[2]) as ours:
    print(ours, flush=True)
    sys.stdin.readline()
"""


def test_a_run_that_another_process_makes_is_left_to_it(small: Small) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", CLAIM, str(small.folder.path), SECOND],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdout.readline().strip() == "True"
    try:
        outcome = small.make(PretendingEngine())
    finally:
        other.communicate("\n")
    assert outcome.elsewhere == [SECOND]
    assert len(outcome.made) == 7
    assert small.make(PretendingEngine()).made == [SECOND]


def test_bars_are_drawn_in_a_terminal_only(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    small.make(PretendingEngine(), terminal=True)
    assert "runs" in small.shown
    assert "7/8" in small.shown
    assert "rounds" in small.shown
    assert "\x1b[" in small.shown


def test_the_time_left_follows_the_work_and_the_clients_of_a_round(tmp_path: Path) -> None:
    first = Small(tmp_path).runs[0].configuration
    longer = first.replace(local_epochs=6)  # three times as many
    dropout = first.replace(inference="mc-dropout", strategy="nwa")
    estimate = Estimate()
    assert estimate.left([(first, 1.0)]) is None
    estimate.record(first, 10.0, 0.5)
    assert estimate.left([(first, 1.0), (first, 0.25)]) == pytest.approx(25.0)
    assert estimate.left([(longer, 1.0)]) == pytest.approx(60.0)
    assert estimate.left([(dropout, 1.0)]) == pytest.approx(20.0), "not met yet: an average one"
    for sampling, share in (
        ({"sampling": "random", "fraction_train": 0.5}, 2 / 3),  # 2 of 3 clients, rounded
        ({"sampling": "cyclic", "clients_in_turn": 1}, 1 / 3),
        ({"sampling": "cyclic", "clients_in_turn": 2}, 2 / 3),
    ):
        assert estimate.left([(first.replace(**sampling), 1.0)]) == pytest.approx(20.0 * share)
    estimate.record(dropout, 4.0)
    assert estimate.left([(dropout, 1.0)]) == pytest.approx(4.0)
    assert estimate.left([(first, 1.0)]) == pytest.approx(20.0)
    assert estimate.left([]) == 0.0
