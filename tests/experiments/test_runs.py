"""``bfl runs``: the runs of a folder, whatever their state."""

import os
from pathlib import Path

import pytest

from bfl.commands.main import main
from bfl.experiments.results.run_folder import CONFIG, METRICS, ROUNDS, RunFolder, locked


def make_run(parent: Path, name: str, *, rounds: int, day: int, finished: bool) -> RunFolder:
    folder = RunFolder.create(parent, name, {"rounds": 4}, {})
    for number in range(1, rounds + 1):
        folder.append_round({"round": number, "seconds": 1.0, "accuracy": number / 10})
    if finished:
        folder.write_metrics({"accuracy": 0.75, "mean-epistemic": 0.1})
    os.utime(folder.path / CONFIG, (day, day))
    return folder


def test_runs_are_listed_newest_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path, "newest", rounds=4, day=9, finished=True)
    make_run(tmp_path / "group", "stopped", rounds=2, day=3, finished=False)
    (make_run(tmp_path, "bad-metrics", rounds=4, day=5, finished=True).path / METRICS).write_text(
        "{"
    )
    bad = make_run(tmp_path, "bad-rounds", rounds=0, day=4, finished=False)
    (bad.path / ROUNDS).write_text("{\n{}\n{}\n")
    (tmp_path / "no-run").mkdir()
    with locked(make_run(tmp_path, "oldest", rounds=1, day=1, finished=False).path):
        assert main(["runs", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:]] for line in printed.splitlines()]
    states = {row[0]: row[1:3] for row in rows if row}
    assert list(states) == ["oldest", "group/stopped", "bad-rounds", "bad-metrics", "newest"]
    assert states["oldest"] == ["running, 1 of 4 rounds", "–"]
    assert states["group/stopped"] == ["stopped, 2 of 4 rounds", "–"]
    assert states["newest"] == ["finished, 4 of 4 rounds", "0.7500"]
    for name, file in (("bad-rounds", ROUNDS), ("bad-metrics", METRICS)):
        assert states[name][0].startswith("unreadable: ")
        assert file in states[name][0]
    assert main(["runs", str(tmp_path / "no-run")]) == 2
    assert "there is no run in" in capsys.readouterr().err
