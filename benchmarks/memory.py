"""The memory of a command and of all that it starts, while it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAMPLING_SECONDS = 1.0


def watched(command: Sequence[str]) -> MemoryOf:
    """Run a command to its end and return the memory that it took; end with its status if it fails.

    Args:
        command: The command; it finds this project's packages, and its output is thrown away.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        memory = MemoryOf(process.pid)
        memory.start()
        status = process.wait()
        memory.end()
    if status:
        sys.exit(status)
    return memory


class MemoryOf(threading.Thread):
    """Samples the memory of a process and of all its descendants, from /proc.

    Attributes:
        resident: The most megabytes resident at any sampled moment, shared pages counted in each
            process that maps them (RSS).
        proportional: The same with shared pages counted once (PSS).
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.resident = self.proportional = 0.0
        self._pid = pid
        self._ended = threading.Event()

    def run(self) -> None:
        """Sample until ``end``."""
        while not self._ended.wait(SAMPLING_SECONDS):
            figures = [_memory(pid) for pid in _descendants(self._pid)]
            self.resident = max(self.resident, sum(rss for rss, _ in figures))
            self.proportional = max(self.proportional, sum(pss for _, pss in figures))

    def end(self) -> None:
        """Stop sampling."""
        self._ended.set()
        self.join()


class PeaksOf(threading.Thread):
    """Keeps the greatest memory of processes by what they do, of all that stem from one.

    Args:
        pid: The process.
        roles: A part of the command line by which each role is known.

    Attributes:
        megabytes: By role, the most megabytes that one of its processes ever had resident, as the
            kernel has counted (VmHWM); 0 of a role that no process had.
    """

    def __init__(self, pid: int, roles: Mapping[str, str]) -> None:
        super().__init__(daemon=True)
        self.megabytes = dict.fromkeys(roles, 0.0)
        self._pid = pid
        self._roles = roles
        self._ended = threading.Event()

    def run(self) -> None:
        """Look until ``end``."""
        while not self._ended.wait(SAMPLING_SECONDS):
            self._look()

    def end(self) -> None:
        """Look a last time."""
        self._ended.set()
        self.join()
        self._look()

    def _look(self) -> None:
        for pid in _descendants(self._pid):
            line, peak = _command_line(pid), _peak(pid)
            for role, part in self._roles.items():
                if part in line:
                    self.megabytes[role] = max(self.megabytes[role], peak)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _peak(pid: int) -> float:
    """Return the greatest resident memory of a process so far, in MB; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    found = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(found[0]) * 1.024e-3 if found else 0.0


def _descendants(pid: int) -> list[int]:
    """Return a process and all processes that stem from it."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        except OSError:  # it has ended meanwhile
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    found = [pid]
    for process in found:
        found += children.get(process, [])
    return found


def _memory(pid: int) -> tuple[float, float]:
    """Return the resident and the proportional memory of a process, in MB; 0 once it has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0.0, 0.0
    kilobytes = {line.split()[0]: int(line.split()[1]) for line in text.splitlines()[1:]}
    return kilobytes["Rss:"] * 1.024e-3, kilobytes["Pss:"] * 1.024e-3
