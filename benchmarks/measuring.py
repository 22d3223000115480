"""Measurement and report of every benchmark.

Times on a machine that others use as well drift by tens of percent, so the two sides of a
comparison take turns (A, B, A, B, …), medians are quoted with their range, and only ratios count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bfl.experiments.results.environment import describe_environment

ROOT = Path(__file__).resolve().parent.parent
SAMPLING_SECONDS = 1.0
CLASSES, TEST_IMAGES = 10, 100
IMAGE_SHAPE = (32, 32, 3)


@dataclass(frozen=True)
class Timing:
    """Several measurements of one thing."""

    median: float
    low: float
    high: float
    runs: int

    @classmethod
    def of(cls, found: Measurements) -> Timing:
        """Return the summary of some measurements."""
        if isinstance(found, Timing):
            return found
        values = [found] if isinstance(found, float) else found
        return cls(statistics.median(values), min(values), max(values), len(values))

    def rate(self, amount: float) -> Timing:
        """Return an amount over each of the measurements."""
        return Timing(amount / self.median, amount / self.high, amount / self.low, self.runs)


Measurements = Timing | Sequence[float] | float
"""Timings of one thing, summed up already or not; a number that is quoted stands alone."""


@dataclass(frozen=True)
class Row:
    """One line of the table: a thing, what it took or reached, and against what.

    Attributes:
        reference_name: What the other side is; empty without one.
        reference: The other side: measured in the same run, or a quoted number.
        ratio: How many times better ours is (faster, smaller), from the two medians.
        goal: The ratio to reach; None where the row only informs.
    """

    what: str
    unit: str
    ours: Timing
    reference_name: str = ""
    reference: Timing | None = None
    ratio: float | None = None
    goal: float | None = None

    @property
    def met(self) -> bool | None:
        """True if the goal is reached; None without one."""
        return None if self.goal is None or self.ratio is None else self.ratio >= self.goal


def row(
    what: str,
    unit: str,
    ours: Measurements,
    name: str = "",
    reference: Measurements | None = None,
    goal: float | None = None,
    *,
    rates: bool = False,
) -> Row:
    """Return a line with the ratio of the medians, where there is a reference.

    Args:
        name: What the other side is.
        rates: Whether the greater of the two is the better, as of images a second.
    """
    mine = Timing.of(ours)
    if reference is None:
        return Row(what, unit, mine)
    other = Timing.of(reference)
    ratio = mine.median / other.median if rates else other.median / mine.median
    return Row(what, unit, mine, name, other, ratio, goal)


@dataclass(frozen=True)
class Report:
    """Report of one benchmark."""

    name: str
    title: str
    rows: Sequence[Row]
    notes: Sequence[str] = field(default_factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """Return the report with the machine's description, for a file."""
        rows = [{**asdict(row), "met": row.met} for row in self.rows]
        return {
            "name": self.name,
            "title": self.title,
            "environment": describe_environment(),
            "rows": rows,
            "notes": list(self.notes),
        }


def seconds(work: Callable[[], Any]) -> float:
    """Return how long a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def alternate(
    sides: Mapping[str, Callable[[], Any]], runs: int = 5, warm_up: int = 1
) -> dict[str, Timing]:
    """Return the seconds that each side's call takes, the sides taking turns.

    Args:
        sides: A call for each name.
        warm_up: Calls of each side before, which are not counted.
    """
    for _ in range(warm_up):
        for work in sides.values():
            work()
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(runs):
        for name, work in sides.items():
            taken[name].append(seconds(work))
    return {name: Timing.of(values) for name, values in taken.items()}


def options(description: str | None) -> argparse.ArgumentParser:
    """Return the options that every benchmark has."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    parser.add_argument("--output", type=Path, help="JSON file that gets the result")
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each side (5)")
    return parser


def publish(report: Report, output: Path | None) -> None:
    """Print a report's table, and write it as JSON if a file is given."""
    print(markdown(report.to_json()))
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(report.to_json(), indent=2) + "\n", encoding="utf-8")


def markdown(report: Mapping[str, Any]) -> str:
    """Return a report, as ``Report.to_json`` gives it, as a Markdown section."""
    lines = [
        f"## {report['title']}",
        "",
        "| what | ours | against | ratio | goal |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in report["rows"]:
        other = row["reference"]
        cells = (
            row["what"],
            _timing(row["ours"], row["unit"]),
            f"{row['reference_name']}: {_timing(other, row['unit'])}" if other else "",
            "" if row["ratio"] is None else f"{row['ratio']:.2f}",
            "" if row["goal"] is None else f"{row['goal']:g}{' ✓' if row['met'] else ' missed'}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    notes = [f"- {note}" for note in report["notes"]]
    return "\n".join([*lines, "", *notes]) + "\n"


def _timing(timing: Mapping[str, Any], unit: str) -> str:
    median, low, high = (_number(timing[key]) for key in ("median", "low", "high"))
    return f"{median} {unit}" if timing["runs"] <= 1 else f"{median} {unit} ({low} to {high})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


# Other processes ---------------------------------------------------------------------------


def last_lines(command: Sequence[str], count: int = 1, **more: Any) -> list[str]:
    """Return the last lines that processes of one command print, run side by side to their ends."""
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more) for _ in range(count)
    ]
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit(f"{' '.join(command)} has failed")
    return [output.splitlines()[-1] for output in outputs]


def simulation_command(*options: str) -> list[str]:
    """Return the command of a simulation with this checkout."""
    call = "import sys; from bfl.commands.flower_simulation import main; sys.exit(main())"
    return [sys.executable, "-c", call, f"--app={ROOT}", *options]


def peer(script: str, *options: str) -> list[str] | None:
    """Return the command of a peer's script; None where no environment is known that has it."""
    python = os.environ.get("BFL_PEERS_PYTHON")
    path = Path(__file__).with_name("peers") / script
    return [python, str(path), *options] if python else None


NO_PEER = "{} was not measured: BFL_PEERS_PYTHON is not set"

# Random images, where there is nothing to learn --------------------------------------------


def write_images(folder: Path, count: int) -> str:
    """Write random images in CIFAR-10's shape with balanced labels; return the data set's word.

    Args:
        folder: The folder that gets ``images.npz``.
        count: Training images; there are 100 test images.
    """
    generator = np.random.default_rng(0)
    path = folder / "images.npz"
    x_train, x_test = (
        generator.integers(0, 256, (size, *IMAGE_SHAPE), dtype=np.uint8)
        for size in (count, TEST_IMAGES)
    )
    y_train, y_test = (np.arange(size) % CLASSES for size in (count, TEST_IMAGES))
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return f"npz:{path}"


# Memory of processes ----------------------------------------------------------------------


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


class Watch(threading.Thread):
    """Looks at a process and all that stem from it, from time to time, until ``end``."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._ended = threading.Event()

    def run(self) -> None:
        """Look until ``end``."""
        while not self._ended.wait(SAMPLING_SECONDS):
            self.look()

    def end(self) -> None:
        """Look a last time."""
        self._ended.set()
        self.join()
        self.look()

    def look(self) -> None:
        """Measure what there is now."""
        raise NotImplementedError


class MemoryOf(Watch):
    """Samples the memory of a process and of all its descendants, from /proc.

    Attributes:
        resident: The most megabytes resident at any sampled moment, shared pages counted in each
            process that maps them (RSS).
        proportional: The same with shared pages counted once (PSS).
    """

    resident = proportional = 0.0

    def look(self) -> None:
        """Sum up the memory of all processes."""
        figures = [_kilobytes(pid, "smaps_rollup") for pid in _descendants(self._pid)]
        self.resident = max(self.resident, 1.024e-3 * sum(f.get("Rss:", 0) for f in figures))
        proportional = 1.024e-3 * sum(f.get("Pss:", 0) for f in figures)
        self.proportional = max(self.proportional, proportional)


class PeaksOf(Watch):
    """Keeps the greatest memory of processes by what they do, of all that stem from one.

    Args:
        roles: A part of the command line by which each role is known.

    Attributes:
        megabytes: By role, the most megabytes that one of its processes ever had resident, as the
            kernel has counted (VmHWM); 0 of a role that no process had.
    """

    def __init__(self, pid: int, roles: Mapping[str, str]) -> None:
        super().__init__(pid)
        self.megabytes = dict.fromkeys(roles, 0.0)
        self._roles = roles

    def look(self) -> None:
        """Take the peak of each process that has a role."""
        for pid in _descendants(self._pid):
            line = _read(pid, "cmdline").replace("\0", " ")
            peak = 1.024e-3 * _kilobytes(pid, "status").get("VmHWM:", 0)
            for role, part in self._roles.items():
                if part in line:
                    self.megabytes[role] = max(self.megabytes[role], peak)


def _read(pid: int, name: str) -> str:
    """Return a file that the kernel has of a process; nothing once it has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8")
    except OSError:
        return ""


def _kilobytes(pid: int, name: str) -> dict[str, int]:
    """Return the figures in kB of such a file, by their names."""
    lines = (line.split() for line in _read(pid, name).splitlines())
    return {words[0]: int(words[1]) for words in lines if words[2:] == ["kB"]}


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
