"""Commands in a terminal of their own: what they print, Ctrl-C, and what they leave behind."""

import os
import pty
import select
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

LIMIT = 5.0
"""Seconds in which a command ends that is told to."""


class Terminal:
    """A command that runs in a pseudo-terminal."""

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:  # the child
            os.chdir(folder)
            os.execve(command[0], list(command), {**os.environ, **(environment or {})})
        self.printed = ""
        self._family: set[int] = set()

    def read(self, seconds: float) -> bool:
        """Take in what is printed; return whether the terminal is still open."""
        if not select.select([self._descriptor], [], [], seconds)[0]:
            return True
        try:
            read = os.read(self._descriptor, 65536)
        except OSError:  # so does Linux say that the last process has closed it
            return False
        self.printed += read.decode(errors="replace")
        return bool(read)

    def wait_for(self, text: str, seconds: float = 300.0) -> None:
        """Wait until a text is printed."""
        deadline = time.monotonic() + seconds
        while text not in self.printed:
            assert time.monotonic() < deadline, self.printed
            assert self.read(0.1), self.printed

    def ctrl_c(self) -> None:
        os.write(self._descriptor, b"\x03")

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def descendants(self) -> set[int]:
        """Return the processes that the command has started, and those that they have."""
        parents = {pid: parent for pid in _pids() if (parent := _parent(pid)) is not None}
        found = {self.pid}
        while young := {p for p, parent in parents.items() if parent in found} - found:
            found |= young
        return found - {self.pid}

    def end(self, interrupt: int, *, again: bool = False) -> int:
        """Interrupt the command and return its status; it and all its processes end in time."""
        family = self.descendants()
        began = time.monotonic()
        self._interrupt(interrupt)
        status = None
        while status is None:
            self.read(0.05)
            took = time.monotonic() - began
            if again and took > 0.5:
                again = False
                self._interrupt(interrupt)
            pid, ended = os.waitpid(self.pid, os.WNOHANG)
            status = os.waitstatus_to_exitcode(ended) if pid else None
            if took > LIMIT and status is None:
                self.kill()
                pytest.fail(f"still there after {LIMIT} s: {self.printed}")
        while self.read(0.2) and select.select([self._descriptor], [], [], 0)[0]:
            pass
        deadline = time.monotonic() + LIMIT
        while left := {pid for pid in family if _parent(pid) is not None}:
            assert time.monotonic() < deadline, f"left: {left}"
            time.sleep(0.05)
        return status

    def wait(self, seconds: float) -> int:
        """Return the status of a command that ends by itself."""
        deadline = time.monotonic() + seconds
        while self.read(0.1):
            if time.monotonic() > deadline:
                self.kill()
                pytest.fail(f"still there after {seconds} s: {self.printed}")
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def named(self, name: str) -> list[int]:
        """Return the processes of this name that the command has started."""
        return [
            pid
            for pid in self.descendants()
            if Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == name
        ]

    def _interrupt(self, number: int) -> None:
        if number == signal.SIGINT:
            self.ctrl_c()
        else:
            self.send(number)

    def kill(self) -> None:
        """End the command and what it has started, should a test have failed."""
        for pid in (*self.descendants(), self.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _parent(pid: int) -> int | None:
    """Return a process's parent; None when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[1])
