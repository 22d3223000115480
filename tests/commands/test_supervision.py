"""A study whose process dies in a run records that run and goes on; told to end, it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bfl.engine.watched import Watched
from bfl.experiments.studies.folder import StudyFolder

ROOT = Path(__file__).resolve().parents[2]
STUB = """
import os, subprocess, sys, time
sys.path.insert(0, {stub!r})
from bfl.commands.entry import bfl

def prepared():
    '''Only the child imports what the study is made with.'''
    from small_study import PretendingEngine
    from bfl.experiments.studies import making

    def act(name, number):
        if {when}:
            {what}

    making._engine = lambda *_: lambda: PretendingEngine(act)

import bfl.commands.entry as entry
run = entry._run
entry._run = lambda module: (prepared(), run(module))[1]
sys.argv = ["bfl", "study", {file!r}, "--output", {out!r}]
sys.argv += ["--only", "iid_seed-0", "--only", "ws_iid_seed-1"]
sys.exit(bfl())
"""
SECOND = "flipout-nwa_iid_seed-0"


def start(folder: Path, when: str, what: str) -> subprocess.Popen[str]:
    sys.path.insert(0, str(ROOT / "tests" / "experiments" / "studies"))
    from small_study import STUDY, write_study

    program = STUB.format(
        stub=str(ROOT / "tests" / "experiments" / "studies"),
        file=str(write_study(folder / "files", STUDY.split("[[columns]]")[0])),
        out=str(folder / "out"),
        when=when,
        what=what,
    )
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
def test_a_run_whose_process_dies_is_recorded_and_the_others_go_on(tmp_path: Path) -> None:
    """Of three runs the second dies in its third round, as Ray's C++ ends a process."""
    process = start(tmp_path, f"(name, number) == ({SECOND!r}, 3)", "os.abort()")
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 1, printed
    folder = tmp_path / "out" / "small"
    [failure] = (folder / "failures").iterdir()
    assert failure.stem == SECOND
    assert "the run's process has died (SIGABRT)" in failure.read_text(encoding="utf-8")
    assert "1 of 3 runs have failed" in printed
    assert set(StudyFolder(folder).results()) == {"flipout-ws_iid_seed-0", "flipout-ws_iid_seed-1"}
    assert printed.count("flipout-ws_iid_seed-0: begins") == 1, "it is not made again"
    # The same command goes on where the run has died.
    assert len((folder / "runs" / SECOND / "rounds.jsonl").read_text("utf-8").splitlines()) == 2


@pytest.mark.slow
def test_what_is_told_to_end_is_not_started_anew(tmp_path: Path) -> None:
    """As a system ends it; Ctrl-C in a study is tested with its runs."""
    process = start(
        tmp_path,
        f"(name, number) == ({SECOND!r}, 3)",
        "subprocess.Popen(['sleep', '300']); print('waits', flush=True); time.sleep(300)",
    )
    assert process.stdout is not None
    while "waits" not in process.stdout.readline():
        assert process.poll() is None
    began = time.monotonic()
    process.terminate()
    printed, _ = process.communicate(timeout=20)
    assert time.monotonic() - began < 5
    assert process.returncode == 128 + signal.SIGTERM, printed
    assert "going on" not in printed
    assert "interrupted" in printed
    assert not (tmp_path / "out" / "small" / "failures").exists()
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # nothing of it is left


@pytest.mark.slow
def test_a_process_that_dies_outside_a_run_is_not_started_anew(tmp_path: Path) -> None:
    process = start(tmp_path, "False", "pass\n    os.abort()")
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "failed: the study's process has died (SIGABRT)" in printed


def test_what_a_process_tells_outlives_it() -> None:
    watched = Watched()
    assert (watched.run, watched.is_over) == ("", False)
    pid = os.fork()
    if not pid:
        watched.begins("a run of a rather long name")
        watched.begins("short")
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert (watched.run, watched.is_over) == ("short", False)
    watched.ends()
    assert watched.run == ""
    watched.over()
    assert watched.is_over
