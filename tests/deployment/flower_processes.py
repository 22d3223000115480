"""Flower's processes for the tests: executables, settings, and an end for all of them."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from installed import executable

ROOT = Path(__file__).resolve().parent.parent.parent
SETTINGS = (
    'model="mlp" rounds=1 local-epochs=1 mc-samples=2 evaluate-mc-samples=1 figures="none" '
    'closing="none"'
)

LOADED = 3
"""How much slower a machine may be that runs other tests beside."""


def free_ports(count: int) -> list[int]:
    """Return loopback ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def run_config(output_dir: Path, name: str, more: str = "") -> str:
    """Return the run configuration of a tiny run with a folder of its own."""
    return f'{SETTINGS} output-dir="{output_dir}" name="{name}" {more}'


def descendants(roots: set[int]) -> set[int]:
    """Return process ids with those of all their descendants, also detached ones."""
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=", "-o", "ppid="], capture_output=True, text=True, check=True
    ).stdout
    pairs = [(int(pid), int(parent)) for pid, parent in map(str.split, listing.splitlines())]
    wanted = {pid for pid, _ in pairs} & roots
    while found := {pid for pid, parent in pairs if parent in wanted} - wanted:
        wanted |= found
    return wanted


def end_processes(roots: set[int]) -> None:
    """End processes and their descendants: politely, and after ten seconds for good."""
    waiting = descendants(roots)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in waiting:
            _send(pid, number)
        deadline = time.monotonic() + 10
        while waiting and time.monotonic() < deadline:
            waiting = {pid for pid in waiting if _lives(pid)}
            time.sleep(0.1)


def wait_for(what: Callable[[], bool], seconds: float) -> None:
    """Wait until something is so, which takes at most so many seconds on a quiet machine.

    Raises:
        TimeoutError: It is not, for three times as long.
    """
    deadline = time.monotonic() + LOADED * seconds
    while not what():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing has happened for {seconds:g} s")
        time.sleep(0.2)


def _send(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _lives(pid: int) -> bool:
    """Return whether a process lives; one of our own that has ended is buried first."""
    try:
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return False
    except ChildProcessError:
        pass
    return _send(pid, 0)


@dataclass
class Flower:
    """Flower's processes for one module's tests, in folders and with settings of their own.

    Attributes:
        folder: A temporary folder.
        environment: The environment of all processes.
    """

    folder: Path
    environment: dict[str, str] = field(init=False)
    started: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.home = self.folder / "home"
        self.work = self.folder / "work"
        self.home.mkdir()
        self.work.mkdir()
        scripts = str(Path(executable("flwr")).parent)
        self.environment = {
            **os.environ,
            "PATH": os.pathsep.join([scripts, os.environ.get("PATH", "")]),
            "BFL_PYTHON_ENV": str(Path(scripts).parent),
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "BFL_CPUS": "1",
        }
        # A Ray cluster of whoever runs the tests is not what they test.
        self.environment.pop("RAY_ADDRESS", None)

    def start(self, *command: str) -> int:
        """Start a process in the empty working folder; its output goes to a log."""
        self.newest_log = self.folder / f"{Path(command[0]).name}-{len(self.started)}.log"
        with self.newest_log.open("wb") as stream:
            process = subprocess.Popen(
                command,
                cwd=self.work,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started.add(process.pid)
        return process.pid

    def run(
        self, *command: str, timeout: float = 150, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; processes that it leaves when it is late are ended."""
        process = subprocess.Popen(
            command,
            cwd=self.work,
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=LOADED * timeout)
        except BaseException:
            end_processes({process.pid})
            raise
        return subprocess.CompletedProcess(command, process.returncode, output)

    def logs(self) -> str:
        """Return the ends of all logs, for a failure's message."""
        return "\n".join(
            f"{path.name}: {path.read_text(errors='replace')[-2000:]}"
            for path in sorted(self.folder.glob("*.log"))
        )

    def end(self) -> None:
        """End all that was started."""
        end_processes(self.started)
