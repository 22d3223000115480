"""A run of a federation, which Flower's command starts on the server, followed to its end."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import tomli_w

from bfl.errors import RunError
from bfl.printing import WAITS, doing, spoke, stamp, tell

STARTED = re.compile(r"Successfully started run (\d+)")
COMPLETED = "finished:completed"

RUN_LOG = "run.log"
"""The file, in the state folder, of all that ``flwr`` prints of the last run."""

CHATTER = re.compile(
    r"(\x1b\[\d+m)?(DEBUG|INFO|WARNING|ERROR) |Using SuperLink|Successfully (started|installed)"
)
"""Lines of Flower's own."""

CLOCK = re.compile(r"^\[ *[\d.]+ s\] ")
"""The seconds of the app's own process, in its lines."""

FAILED = "ServerApp raised an exception"
"""In the line of Flower's behind which a traceback and nothing of the run's follows."""

LAST = "next: bfl report"
"""In the last line of a run."""

START_WAIT, PATIENCE, LOOK_INTERVAL = 120.0, 300.0, 1.0
"""Seconds until a SuperLink has to answer at first and in a run, and between questions to it."""


def wait_for_server(port: int, home: Path) -> None:
    """Wait until the SuperLink of this machine's server, with that Flower home, takes calls."""
    doing(f"waiting for the server on this machine (port {port}), which its start.sh starts")
    deadline = time.monotonic() + START_WAIT
    while time.monotonic() < deadline:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 2.0).close()
            if not home.is_dir():  # flwr would make one that others may enter
                raise RunError(
                    f"the server on this machine's port {port} has another state folder than "
                    f"{home.parent}; allowed: its --state, or another superlink-port in server.toml"
                )
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
    log: Path,
    part: str = "",
) -> None:
    """Start a run, print its own lines, and return when it is completed.

    Flower's command exits with 0 when a run fails, and its log may break off while a run goes on:
    what counts is what the SuperLink says. An interruption stops the run as well.

    Args:
        command: The command ``flwr``.
        connection: The SuperLink's name in the Flower home of the environment.
        values: The run configuration, of keys that the app declares.
        log: The file that gets Flower's lines as well, written anew.
        part: What the run is a part of: its lines are then only what is being done for that.

    Raises:
        RunError: The run has not been started or completed, or nobody answers any more.
    """
    prefix = f"{part}: " if part else ""
    doing(f"{prefix}the run's code is sent to the server")
    found = ""
    started, over = Event(), Event()
    # Elsewhere than in a checkout, whose packages would be imported in place of the bundle's.
    with (
        log.open("w", encoding="utf-8") as file,
        tempfile.TemporaryDirectory(prefix="bfl-run-") as work,
    ):
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
            failed = False
            for line in process.stdout or ():
                file.write(line)
                file.flush()
                failed = failed or FAILED in line
                match = STARTED.search(line)
                if match and not found:  # before anybody can interrupt this
                    found = match[1]
                    started.set()
                    doing(f"{prefix}the server starts a process for the run")
                if failed or LAST in line:
                    doing(f"{prefix}the server ends the run")
                if failed or not found or CHATTER.match(line):
                    continue
                # By this command's clock, and with paths from where it was given.
                clock, text = CLOCK.match(line), CLOCK.sub("", line).rstrip("\n")
                if part or (clock and text.endswith(WAITS)):
                    if LAST not in line:
                        doing(f"{prefix}{text.removesuffix(WAITS)}")
                    continue
                if LAST not in line:
                    # Until it says what comes next, which nobody waits for in a log.
                    doing("the run goes on" if sys.stdout.isatty() else "")
                told = f"{stamp()} {text}" if clock else text
                print(told.replace(f"{Path.cwd()}/", ""), flush=True)
                spoke()
            over.set()

        reader = Thread(target=read, daemon=True)
        reader.start()
        try:
            while not over.wait(0.2):
                pass
            status = process.wait()
            if not found:
                said = log.read_text(encoding="utf-8").strip()
                raise RunError(f"flwr has not started the run: {said}")
            try:
                _wait_for_end(command, connection, environment, found, status)
            except RunError as error:
                raise RunError(f"{error}; all lines of Flower's are in {log}") from None
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
            reader.join(1.0)


def _wait_for_end(
    command: str, connection: str, environment: Mapping[str, str], run: str, streamed: int
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
                reason = details.removeprefix("ServerApp failed with exception: ")
                raise RunError(f"run {run} is {status}: {reason}")
            if streamed:
                tell(f"the log has ended (status {streamed}), and run {run} goes on")
                streamed = 0
        time.sleep(LOOK_INTERVAL)
