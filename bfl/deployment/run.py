"""A run of a federation, which Flower's command starts on the server, followed to its end."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import tomli_w

from bfl.activity import doing, spoke
from bfl.deployment.processes import Say
from bfl.errors import RunError

STARTED = re.compile(r"Successfully started run (\d+)")
COMPLETED = "finished:completed"

START_WAIT, PATIENCE, LOOK_INTERVAL = 120.0, 300.0, 1.0
"""Seconds until a SuperLink has to answer at first and in a run, and between questions to it."""


def wait_for_server(port: int) -> None:
    """Wait until the SuperLink of this machine's server takes calls."""
    doing(f"waiting for the server on this machine (port {port}), which its start.sh starts")
    deadline = time.monotonic() + START_WAIT
    while time.monotonic() < deadline:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 2.0).close()
            return
        time.sleep(0.2)
    raise RunError(
        f"no server of this federation answers on this machine's port {port} after "
        f"{START_WAIT:g} s; its start.sh starts it"
    )


def follow_run(
    command: str,
    app: Path,
    connection: str,
    environment: Mapping[str, str],
    values: Mapping[str, Any],
    say: Say,
) -> None:
    """Start a run, print its log, and return when it is completed.

    Flower's command exits with 0 when a run fails, and its log may break off while a run goes on:
    what counts is what the SuperLink says. An interruption stops the run as well.

    Args:
        command: The command ``flwr``.
        connection: The SuperLink's name in the Flower home of the environment.
        values: The run configuration, of keys that the app declares.

    Raises:
        RunError: The run has not been started or completed, or nobody answers any more.
    """
    found = ""
    started, over = Event(), Event()
    # Elsewhere than in a checkout, whose packages would be imported in place of the bundle's.
    with tempfile.TemporaryDirectory(prefix="bfl-run-") as work:
        config = Path(work) / "run-config.toml"
        config.write_text(tomli_w.dumps(dict(values)), encoding="utf-8")
        process = subprocess.Popen(
            [command, "run", str(app), connection, "--stream", "--run-config", str(config)],
            cwd=work,
            env={**environment, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

        def read() -> None:
            nonlocal found
            for line in process.stdout or ():
                follows, match = started.is_set(), STARTED.search(line)
                if match and not follows:  # before anybody who reads the line can interrupt this
                    found = match[1]
                    started.set()
                print(line, end="", flush=True)
                spoke()
                if follows:  # the server's own lines say what it is doing
                    doing("")
                elif match:
                    doing("the server starts a process for the run, and asks the clients")
            over.set()

        Thread(target=read, daemon=True).start()
        try:
            while not over.wait(0.2):
                pass
            status = process.wait()
            if not found:
                raise RunError("flwr has not started the run; what it said is above")
            _wait_for_end(command, connection, environment, found, status, say)
        except KeyboardInterrupt:
            if started.wait(1.0):  # it may be this moment
                stop = [command, "stop", found, connection]
                # It outlives this command, which ends sooner than a SuperLink may answer.
                script = ["sh", "-c", '"$@" >/dev/null 2>&1 </dev/null &', "sh", *stop]
                subprocess.run(script, env=environment, start_new_session=True, check=False)
            raise
        finally:
            process.kill()
            process.wait()


def _wait_for_end(
    command: str,
    connection: str,
    environment: Mapping[str, str],
    run: str,
    streamed: int,
    say: Say,
) -> None:
    question = [command, "ls", connection, "--run-id", run, "--format", "json"]
    answered = time.monotonic()
    while True:
        try:
            done = subprocess.run(
                question, env=environment, capture_output=True, text=True, timeout=START_WAIT
            )
            described = json.loads(done.stdout)["runs"][0]
            status, details = described["status"], described["status-details"]
        except (ValueError, LookupError, subprocess.TimeoutExpired):
            if time.monotonic() - answered >= PATIENCE:
                raise RunError(
                    f"the SuperLink has not answered for {PATIENCE:g} s; run {run} may go on: look "
                    "at the run's folder before it is resumed"
                ) from None
        else:
            answered = time.monotonic()
            if status == COMPLETED:
                return
            if status.startswith("finished:"):
                raise RunError(f"run {run} is {status} ({details})")
            if streamed:
                say(f"the log has ended (status {streamed}), and run {run} goes on")
                streamed = 0
        time.sleep(LOOK_INTERVAL)
