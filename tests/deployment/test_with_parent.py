"""A process that ends with its parent, also when that is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bfl.engine.processes import WITH_PARENT, with_parent

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of this")

CHILD = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"

PARENT = f"""
import sys, time
from pathlib import Path
from bfl.deployment.processes import Processes
with Processes({{}}, Path.cwd()) as processes:
    processes.start("a child", sys.executable, "-c", {CHILD!r})
    time.sleep(60)
"""


def lives(pid: int) -> bool:
    """Return whether a process runs; one that has ended and is not buried yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@LINUX
def test_what_a_federation_has_started_ends_when_it_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert lives(child)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 10
    while lives(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not lives(child)


def test_it_is_the_command_itself() -> None:
    """One process, with the command's arguments and status, by whose id it can be ended."""
    code = "import os, sys; print(os.getpid(), sys.argv[1]); sys.exit(7)"
    process = subprocess.Popen(
        with_parent(sys.executable, "-c", code, "a b"), stdout=subprocess.PIPE, text=True
    )
    said, _ = process.communicate()
    assert said == f"{process.pid} a b\n"
    assert process.returncode == 7


def test_nothing_is_run_for_a_parent_that_has_ended_before() -> None:
    """Its id stands for the parent that was; the process has another one by then."""
    command = [sys.executable, "-I", "-S", str(WITH_PARENT), "1", sys.executable, "-c", "print(1)"]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b""
