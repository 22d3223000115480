"""Flower's processes on this machine: started together, and ended together."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import psutil

from bfl.engine.processes import descendants, kill, with_parent
from bfl.errors import RunError

Say = Callable[[str], None]
"""Prints a line for the operator."""

LOG = "flower.log"
"""The file, in the state folder, of what Flower's processes and the web server print."""

MOST_LOG = 10_000_000
"""Bytes of it above which a start begins another, and keeps it as ``flower.log.1``."""

PATIENCE = 2.5
"""Seconds for ending in good order: less than an interrupted command has for all."""

MOST_REVIVALS, WITHIN = 5, 60.0
"""Greatest number of ends of a process that is kept alive, and the seconds they are counted in."""


class Processes:
    """Processes that end together, with all that they have started, when they are closed.

    On Linux they end with this process also when it is killed.

    Args:
        log: The file that gets their output; None: it is shown beside that of this process.
    """

    def __init__(self, environment: Mapping[str, str], work: Path, log: Path | None = None) -> None:
        self._environment = dict(environment)
        self._work = work
        self._log = log
        if log and log.is_file() and log.stat().st_size > MOST_LOG:
            log.replace(log.with_name(f"{log.name}.1"))
        self._started: dict[str, psutil.Popen] = {}
        self._starts: dict[str, Callable[[], psutil.Popen]] = {}
        self._revivals: dict[str, deque[float]] = {}

    def start(self, name: str, *words: str | Path) -> None:
        """Start a process.

        Args:
            name: Its name in messages.
            words: The command, with its absolute path; nothing secret, as all users of a machine
                may read it.
        """

        def start_anew() -> psutil.Popen:
            with self._log.open("ab") if self._log else nullcontext() as output:
                return psutil.Popen(
                    with_parent(*words),
                    cwd=self._work,
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )

        self._starts[name] = start_anew
        self._started[name] = start_anew()

    def keep_alive(self, name: str) -> None:
        """Have ``check`` restart a process that has ended, unless it ends again and again."""
        self._revivals[name] = deque(maxlen=MOST_REVIVALS)

    def run_flwr(self, *words: str) -> tuple[int, str]:
        """Run ``flwr`` to its end; return its status and its output."""
        places: Any = {"cwd": self._work, "env": self._environment, "stdin": subprocess.DEVNULL}
        places |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run([command("flwr"), *words], **places)
        return done.returncode, str(done.stdout)

    def check(self) -> None:
        """Raise RunError if a process has ended, but for those that are kept alive."""
        for name, process in self._started.items():
            status = process.poll()
            if status is None:
                continue
            revivals, now = self._revivals.get(name), time.monotonic()
            if revivals is None or (len(revivals) == MOST_REVIVALS and now - revivals[0] < WITHIN):
                where = f"the end of {self._log}" if self._log else "above"
                raise RunError(f"{name} has ended (status {status}); what it said is {where}")
            print(f"warning: {name} has ended (status {status}) and is restarted", flush=True)
            revivals.append(now)
            self._started[name] = self._starts[name]()

    def close(self) -> None:
        """End all, politely and then for good."""
        # Flower detaches some of what it starts, which outlives its parent otherwise.
        family, started = descendants(), list(self._started.values())
        for process in started:
            with suppress(psutil.Error):
                process.terminate()
        psutil.wait_procs(started, PATIENCE)
        kill(family)
        psutil.wait_procs(started, 1.0)
        self._started.clear()


def command(name: str) -> str:
    """Return a command of the environment that this process runs in."""
    path = Path(sys.executable).parent / name
    if not path.is_file():
        raise RunError(f"there is no command {name} next to {sys.executable}; install bfl there")
    return str(path)


def flower_environment(home: Path) -> dict[str, str]:
    """Return the environment of Flower's processes."""
    # Flower starts its processes by name.
    commands = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {
        **os.environ,
        "PATH": commands,
        "FLWR_HOME": str(home),
        # The environment that is active has the project installed: no `uv sync` for every run.
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    }
