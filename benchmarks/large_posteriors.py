#!/usr/bin/env python
"""Large posteriors over real connections: seconds a round, and the memory of every process.

    python benchmarks/large_posteriors.py --output FILE --runs 2 --megabytes 100 600

A server and two clients as `bfl federation` makes and starts them, on this machine, with TLS and
keys. The clients do not train: each sends back the posterior that it gets.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from measuring import PeaksOf, Report, Row, options, publish, row

from bfl.deployment import setup
from bfl.deployment.private_files import FederationFolder
from bfl.deployment.processes import command, flower_environment
from bfl.deployment.settings import ServerSettings

HERE = Path(__file__).resolve().parent
CLIENTS = 2
BYTES = 8
"""Bytes of a Gaussian parameter: a mean and a variance of float32."""

APP = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "large-posteriors"
version = "1.0.0"
description = "Clients that send back what they get"
license = { text = "Apache-2.0" }
dependencies = ["flwr[simulation]>=1.41,<1.43"]

[tool.flwr.app]
publisher = "bfl"
fab-include = ["*.py"]

[tool.flwr.app.components]
serverapp = "no_op:large"
clientapp = "no_op:client"

[tool.flwr.app.config]
clients = 2
rounds = 1
gaussians = 1
output = ""
"""

ROLES = {
    "ServerApp": "flwr-serverapp",
    "SuperLink": "flower_process.py superlink",
    "proxy": "bfl.deployment.proxy",
    "a client's SuperNode": "flower_process.py node",
    "a client's app": "flower_process.py worker",
}
"""Processes, by a part of their command lines."""


def free_ports(count: int) -> list[int]:
    """Return loopback ports that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@contextmanager
def federation(folder: Path) -> Iterator[FederationFolder]:
    """Start a federation; stop it at the end."""
    port, superlink = free_ports(2)
    settings = ServerSettings(
        hosts=("localhost",), bind="127.0.0.1", port=port, superlink_port=superlink
    )
    made = setup.init(folder / "federation", settings, str(CLIENTS), datetime.now(UTC))
    log = folder / "server.log"
    scripts = [made.server, *(made.client(f"client-{n}") for n in range(CLIENTS))]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for place in scripts:
            with (folder / f"{place.name}.log").open("wb") as stream:
                started.append(
                    subprocess.Popen(
                        ["sh", str(place / "start.sh")],
                        env=flower_environment(folder / "home"),
                        stdout=stream,
                        stderr=subprocess.STDOUT,
                        stdin=subprocess.DEVNULL,
                    )
                )
            while "clients call" not in log.read_text(encoding="utf-8", errors="replace"):
                if started[0].poll() is not None:
                    sys.exit(log.read_text(encoding="utf-8", errors="replace"))
                time.sleep(0.2)
        yield made
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait()


def app(folder: Path) -> Path:
    """Write the app that is run, and return its folder."""
    made = folder / "large-posteriors"
    made.mkdir()
    (made / "pyproject.toml").write_text(APP, encoding="utf-8")
    shutil.copy(HERE / "no_op.py", made)
    return made


def measured(megabytes: int, runs: int) -> tuple[list[float], dict[str, float]]:
    """Return the seconds of rounds with posteriors of a size, and peaks of memory in MB by role."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        output = folder / "seconds.json"
        config = f'gaussians={megabytes * 10**6 // BYTES} rounds={runs} output="{output}"'
        with federation(folder) as made:
            peaks = PeaksOf(os.getpid(), ROLES)
            peaks.start()
            home = made.server / "state" / "flower"
            done = subprocess.run(
                [
                    *(command("flwr"), "run", str(app(folder)), "federation", "--stream"),
                    *("--run-config", config),
                ],
                env=flower_environment(home),
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            peaks.end()
        if not output.exists():  # flwr's status says nothing of the run's
            logs = "\n".join(path.read_text()[-3000:] for path in sorted(folder.glob("*.log")))
            sys.exit(f"{megabytes} MB: the run has not ended well\n{done.stdout[-5000:]}\n{logs}")
        return json.loads(output.read_text(encoding="utf-8")), peaks.megabytes


def rows_of(megabytes: int, seconds: Sequence[float], peaks: dict[str, float]) -> list[Row]:
    """Return the lines of one size."""
    what = f"{megabytes} MB"
    return [
        row(f"{what}: a round", "s", seconds),
        *(row(f"{what}: {role}", "MB", peak) for role, peak in peaks.items()),
    ]


def main() -> None:
    """Measure, print the table, and write it if asked to."""
    parser = options(__doc__)
    parser.set_defaults(runs=2)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[100, 600], help="(100 600)")
    given = parser.parse_args()
    notes = (
        f"A posterior's megabytes are {BYTES} bytes a parameter, mean and variance in float32; "
        f"{CLIENTS} clients that send back what they get, server and clients on this machine, TLS "
        "on loopback; the first round, in which processes start, is left out.",
        "Memory is the greatest that was resident of each process at any moment (VmHWM), of the "
        "two clients the greater.",
        "The machine was shared: seconds are rough, bytes are not.",
    )
    title = "Large posteriors over real connections"
    rows: list[Row] = []
    for megabytes in given.megabytes:  # what has been measured stays if a larger one fails
        rows += rows_of(megabytes, *measured(megabytes, given.runs))
        publish(Report("large_posteriors", title, rows, notes), given.output)


if __name__ == "__main__":
    main()
