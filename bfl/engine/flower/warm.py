"""A SuperNode's tasks, and the long-lived process that they are given to."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PushTaskOutputRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient

from bfl.engine.processes import with_parent

PROCESS = Path(__file__).with_name("flower_process.py")
ACQUIRE = "/flwr.proto.Runtime/AcquireTask"

GIVEN_UP_PATIENCE = 5.0
"""Seconds that a worker has for a task when its SuperNode has the next one already. That has the
reply, and the worker is about to end; or it has given the task up, and the worker waits for ever.
"""

PATIENCE = 1.0
"""Seconds that a worker has for ending in good order."""


@dataclass(frozen=True)
class Task:
    """A task of a SuperNode: its one-time token, and the hash of its code's bundle."""

    token: str
    bundle: str


@dataclass(frozen=True)
class NodePort:
    """Port at which a SuperNode's own processes reach it.

    Attributes:
        address: Host and port, on loopback.
        authority: The file of the certificate that has signed the SuperNode's, for this start. No
            other process that listens on that port is trusted.
    """

    address: str
    authority: Path


def flower_command(role: str) -> list[str]:
    """Return the command of a process of ours: ``superlink`` and ``node`` take Flower's options."""
    # -P: not the folder of the file, whose modules have names that an app may use.
    return [sys.executable, "-P", str(PROCESS), role]


class Tasks:
    """The tasks of a SuperNode that was started with ``--isolation process`` and a secret."""

    def __init__(self, port: NodePort, secret: bytes) -> None:
        self._port = port
        acquires = frozenset({ACQUIRE})
        self._client = self._client_with(
            SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=acquires)
        )

    def _client_with(self, proof: Any) -> RuntimeHttpClient:
        return RuntimeHttpClient.from_server_address(
            server_address=self._port.address,
            insecure=False,
            root_certificates=self._port.authority.read_bytes(),
            interceptors=[RuntimeVersionHttpInterceptor(component_name="SuperExec"), proof],
        )

    def next(self) -> Task | None:
        """Return the next task; None if there is none, or if the SuperNode is not there (yet)."""
        request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
        try:
            answer = self._client.AcquireTask(request)
        except httpx.TransportError:
            return None
        return Task(answer.token, answer.task.fab_hash) if answer.token else None

    def close(self, task: Task) -> None:
        """End a task that the SuperNode itself has given up: no answer is expected of it."""
        client = self._client_with(RuntimeTokenHttpInterceptor(task.token))
        # Whatever it says: it forgets a task by itself that nobody plays.
        with suppress(httpx.HTTPError):
            client.PushTaskOutput(
                PushTaskOutputRequest(sub_status=SubStatus.FAILED, details="given up")
            )
        client.close()


@dataclass
class WarmWorker:
    """The process that plays tasks; a new one when it has died, or when a task brings other code.

    Attributes:
        say: Prints a message, when a worker has died or was ended.
        timeout: Seconds that a task may take; then the worker is ended.
        bundles: The SHA-256 of each bundle that the worker runs; none: it runs all.
    """

    port: NodePort
    environment: Mapping[str, str]
    work: Path
    say: Callable[[str], None]
    timeout: float
    bundles: Sequence[str] = ()
    _process: subprocess.Popen[str] | None = None
    _bundle: str = ""

    def play(
        self, task: Task, meanwhile: Callable[[], None], tasks: Tasks | None = None
    ) -> Task | None:
        """Play a task to its end; return the next one if it has come in the meantime.

        For a worker that dies or is killed, the SuperNode answers after a minute.

        Args:
            meanwhile: Called each second; what it raises ends the worker.
            tasks: The SuperNode's tasks; if there is a next one already, this one has a few seconds
                left, and is closed.
        """
        process = self._process_for(task)
        stdin, stdout = _pipes(process)
        after: Task | None = None
        deadline = time.monotonic() + self.timeout
        try:
            stdin.write(f"{task.token}\n")
            stdin.flush()
            while not select.select([stdout], [], [], min(1.0, self.timeout))[0]:
                meanwhile()
                if tasks and after is None and (after := tasks.next()):
                    deadline = min(deadline, time.monotonic() + GIVEN_UP_PATIENCE)
                if time.monotonic() >= deadline:
                    # Not asked to end: it would tell the SuperNode that its task is over, without
                    # an answer, for which that would wait for ever.
                    process.kill()
                    self.close()
                    if tasks and after:
                        tasks.close(task)
                    reason = "the SuperNode has given up a task, as the server was gone"
                    if not after:
                        reason = f"a task has taken more than {self.timeout:g} s (task-timeout)"
                    self.say(f"{reason}: its worker is ended, and the next task gets another")
                    return after
            answer = stdout.readline()
        except BrokenPipeError:
            answer = ""
        except BaseException:
            self.close()
            raise
        if not answer:
            self.say(f"the worker has died (status {process.wait()}); the next task gets another")
            self.close()
        return after

    def _process_for(self, task: Task) -> subprocess.Popen[str]:
        """Return the worker, a new one if that has died or another bundle's code is its own."""
        process = self._process
        if process is not None and (process.poll() is not None or self._bundle != task.bundle):
            self.close()
        if self._process is None:
            worker = [*flower_command("worker"), self.port.address, str(self.port.authority)]
            self._process = subprocess.Popen(
                with_parent(*worker, *self.bundles),
                cwd=self.work,
                env=dict(self.environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._bundle = task.bundle
        return self._process

    def close(self) -> None:
        """End the worker, if there is one."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in _pipes(process):
            with suppress(BrokenPipeError):
                stream.close()


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the worker was started without pipes")
    return process.stdin, process.stdout
