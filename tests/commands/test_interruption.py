"""SIGINT and SIGTERM end any command in time, whatever it is doing; no Ray, no TensorFlow."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from terminal import Terminal

from bfl.commands.terminal import exits_with_status
from bfl.errors import RunError

COMMAND = """
import hashlib, subprocess, sys, threading, time
from bfl.commands.terminal import exits_with_status
from bfl.engine.run import EngineRun
from bfl.errors import RunError

run = EngineRun()
run.advice = "go on like this"

def wait_for_ever():
    subprocess.Popen(["sleep", "1000"])
    print("ready", flush=True)
    threading.Event().wait()

def compute_for_ever():  # no handler of Python's is called meanwhile
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)

def print_for_ever():
    while True:
        print("ready" * 1000, flush=True)

def leave_a_thread():
    threading.Thread(target=threading.Event().wait).start()
    wait_for_ever()

def end_by_another_error():
    print("ready", flush=True)
    while not run.ended:
        try:
            time.sleep(0.01)
        except KeyboardInterrupt:
            pass
    run.raise_if_ended()

@exits_with_status
def command(arguments):
    with run.in_progress():
        globals()[arguments[0]]()

sys.exit(command(sys.argv[1:]))
"""

INT, TERM = signal.SIGINT, signal.SIGTERM


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "doing"),
    [(TERM, "compute_for_ever"), (INT, "leave_a_thread"), (TERM, "end_by_another_error")],
)
def test_a_command_ends_with_its_processes(number: int, doing: str, tmp_path: Path) -> None:
    terminal = Terminal([sys.executable, "-c", COMMAND, doing], tmp_path)
    terminal.wait_for("ready")
    time.sleep(0.3)  # it says so just before
    assert terminal.end(number, again=True) == 128 + number
    assert "interrupted" in terminal.printed
    if doing != "end_by_another_error":
        assert "go on like this" in terminal.printed
    assert "Traceback" not in terminal.printed
    assert terminal.printed.count("interrupted") == 1


IMPORTING = """
import importlib, sys, time
from bfl.commands import entry

def import_module(name):
    print("importing", name, flush=True)
    time.sleep(60)

importlib.import_module = import_module
sys.exit(getattr(entry, sys.argv[1])())
"""


def test_a_command_that_is_still_being_imported_ends_as_well(tmp_path: Path) -> None:
    terminal = Terminal([sys.executable, "-c", IMPORTING, "bfl"], tmp_path)
    terminal.wait_for("importing bfl.commands.")
    assert terminal.end(signal.SIGINT) == 130
    assert "Traceback" not in terminal.printed


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    during = []

    @exits_with_status
    def command(arguments: list[str] | None) -> None:
        during.extend([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)])
        raise RunError("no luck")

    assert command() == 1
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert not set(map(id, before)) & set(map(id, during))
    assert signal.set_wakeup_fd(-1) == -1


def test_nobody_who_reads_is_no_reason_to_stay(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "print_for_ever"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,
    )
    assert process.stdout is not None
    assert process.stdout.read(5) == b"ready"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=5) == 143
    process.stdout.close()
