"""Processes that are started together end together, also where their parent is killed."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from flower_processes import wait_for

from bfl.deployment.processes import MOST_REVIVALS, Processes
from bfl.engine.processes import WITH_PARENT, with_parent
from bfl.errors import RunError

CHILD = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
PARENT = f"""
import sys, time
from pathlib import Path
from bfl.deployment.processes import Processes
Processes({{}}, Path.cwd()).start("a child", sys.executable, "-c", {CHILD!r})
time.sleep(60)
"""


def lives(pid: int) -> bool:
    """Return whether a process runs; one that has ended and is not buried yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of this")
def test_what_a_federation_has_started_ends_when_it_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert lives(child)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    wait_for(lambda: not lives(child), 10)


def test_it_is_the_command_itself() -> None:
    """One process, with the command's arguments and status, by whose id it can be ended."""
    code = "import os, sys; print(os.getpid(), sys.argv[1]); sys.exit(7)"
    process = subprocess.Popen(
        with_parent(sys.executable, "-c", code, "a b"), stdout=subprocess.PIPE, text=True
    )
    printed, _ = process.communicate()
    assert printed == f"{process.pid} a b\n"
    assert process.returncode == 7


def test_nothing_is_run_for_a_parent_that_has_ended_before() -> None:
    """Its id stands for the parent that was; the process has another one by then."""
    command = [sys.executable, "-I", "-S", str(WITH_PARENT), "1", sys.executable, "-c", "print(1)"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b""


def test_a_process_that_ends_again_and_again_has_ended(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    leaves = f"import os; open({str(marks)!r} + '/' + str(os.getpid()), 'w')"
    with closing(Processes(os.environ, tmp_path)) as processes:
        processes.start("it", sys.executable, "-S", "-c", leaves)
        processes.keep_alive("it")
        with pytest.raises(RunError, match="it has ended"):
            wait_for(lambda: processes.check() is not None, 20)  # type: ignore[func-returns-value]
    assert len(list(marks.iterdir())) == MOST_REVIVALS + 1


def test_a_process_that_is_kept_alive_is_started_anew_and_no_other(tmp_path: Path) -> None:
    """The proxy's end is not the server's; at the end, nothing is left."""
    marks = tmp_path / "marks"
    marks.mkdir()
    leaves = f"import os; open({str(marks)!r} + '/' + str(os.getpid()), 'w')"
    with closing(Processes(os.environ, tmp_path, tmp_path / "log")) as processes:
        processes.start("it", sys.executable, "-c", leaves)
        processes.keep_alive("it")
        processes.start("another", sys.executable, "-c", CHILD)

        def twice() -> bool:
            processes.check()
            return len(list(marks.iterdir())) >= 2

        wait_for(twice, 20)
        wait_for(lambda: (tmp_path / "log").read_text() != "", 20)
        child = int((tmp_path / "log").read_text())
        os.kill(child, signal.SIGKILL)
        with pytest.raises(RunError, match="another has ended"):
            wait_for(lambda: processes.check() is not None, 20)  # type: ignore[func-returns-value]
        processes.start("a third", sys.executable, "-c", CHILD)
        wait_for(lambda: len((tmp_path / "log").read_text().split()) == 2, 20)
        child = int((tmp_path / "log").read_text().split()[1])
    assert not lives(child)
