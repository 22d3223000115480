"""A federation across hosts: links that are cut, and clients and servers that are killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from flower_processes import ROOT, Flower, end_processes, run_config, wait_for
from hosts import Hosts, why_not

from bfl.configuration.sources import parse_pairs
from bfl.deployment import setup
from bfl.deployment.settings import ServerSettings
from bfl.engine.flower import FlowerApp, run_serially
from bfl.experiments.results.run_folder import RunFolder

pytestmark = pytest.mark.long

SERVER, NAME = "server", "fed.example.org"
CLIENTS = ("client-0", "client-1", "client-2")
ADDRESSES = {SERVER: "10.77.0.1", **{name: f"10.77.0.1{n}" for n, name in enumerate(CLIENTS)}}
ROUNDS = 5
MASKED = (
    'exchange="masked" masked-reach=0.0055 partition="dirichlet" alpha=0.3 batch-size=16 '
    'model="mlp" train-examples=200 rounds=1 local-epochs=1 mc-samples=1 server-evaluates=false'
)
"""With as many steps as client 1 makes, its means leave the range: it fails when it has trained."""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    if reason := why_not():
        pytest.skip(reason)
    made = Hosts(ADDRESSES, {NAME: ADDRESSES[SERVER]})
    try:
        yield made
    finally:
        made.remove()


class Federation:
    """A server and three clients, each on a host of its own.

    Args:
        flower: Starts processes.
        hosts: The hosts.
        folder: A temporary folder.
    """

    def __init__(self, flower: Flower, hosts: Hosts, folder: Path) -> None:
        self.flower, self.hosts = flower, hosts
        self.made = setup.init(folder / "federation", ServerSettings((NAME,)), 3, datetime.now(UTC))
        for name in CLIENTS:  # of masked rounds: whom each of them knows by itself
            shutil.copy(self.made.server / "clients.toml", self.made.client(name))
            (self.made.client(name) / "node.toml").write_text('clients-list = "clients.toml"\n')
        flower.environment["FLWR_HOME"] = str(self.made.server / "state" / "flower")
        self.logs: dict[str, list[Path]] = {}
        self.pids: dict[str, int] = {}

    def start(self, host: str) -> None:
        """Start the server or a client on its host."""
        folder = self.made.server if host == SERVER else self.made.client(host)
        self._start(host, host, "sh", str(folder / "start.sh"))

    def run(self, config: str) -> None:
        """Start a run on the server's host."""
        script = str(ROOT / "scripts" / "flwr-run.sh")
        self._start("run", SERVER, script, "federation", "--run-config", config)

    def _start(self, name: str, host: str, *command: str) -> None:
        log = self.flower.folder / f"ip-{len(self.flower.started)}.log"
        self.pids[name] = self.flower.start(*self.hosts.on(host, *command))
        self.logs.setdefault(name, []).append(log)

    def said(self, name: str) -> str:
        """Return what all processes of a name have said, in one line."""
        text = " ".join(log.read_text(errors="replace") for log in self.logs[name])
        return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())

    def kill(self, name: str) -> None:
        """Kill a process alone: what it has started is not told."""
        os.kill(self.pids[name], signal.SIGKILL)
        os.waitpid(self.pids[name], 0)

    def has_ended(self, name: str) -> bool:
        """Return whether a process has ended, which is then buried."""
        try:
            return os.waitpid(self.pids[name], os.WNOHANG)[0] != 0
        except ChildProcessError:
            return True

    def wait_for(self, name: str, text: str, seconds: float) -> None:
        """Wait until a process has said something."""
        try:
            wait_for(lambda: text in self.said(name), seconds)
        except TimeoutError:
            pytest.fail(f"{name} has not said '{text}':\n{self.flower.logs()}")


def test_a_run_outlives_links_clients_and_the_server(
    flower: Flower, hosts: Hosts, tmp_path: Path
) -> None:
    federation = Federation(flower, hosts, tmp_path)
    for host in (SERVER, *CLIENTS):
        federation.start(host)
    federation.wait_for(SERVER, "clients call", 120)
    config = run_config(tmp_path, "run", "evaluate-every=0 node-timeout=150").replace(
        "rounds=1", f"rounds={ROUNDS}"
    )
    federation.run(config)
    folder = RunFolder(tmp_path / "run")
    wait_for(lambda: len(folder.rounds()) >= 1, 200)

    # In the second round a client is killed, and the link of another one is cut for a while.
    federation.kill("client-1")
    hosts.link("client-2", "down")
    time.sleep(8)
    hosts.link("client-2", "up")

    def second_round() -> bool:
        if federation.has_ended("client-1"):  # as systemd does
            time.sleep(1)
            federation.start("client-1")
        return len(folder.rounds()) >= 2

    wait_for(second_round, 200)
    # What has happened is in the logs, in words; those of a run come by and by.
    federation.wait_for("run", "client 1: failed: Error: Node Unavailable", 60)
    # The server's host fails, with all that runs on it.
    end_processes({federation.pids["run"]})
    federation.kill(SERVER)
    federation.start(SERVER)
    wait_for(lambda: federation.said(SERVER).count("clients call") == 2, 120)
    rounds = len(folder.rounds())
    federation.run(f"{config} resume=true")
    wait_for(lambda: second_round() and federation.has_ended("run"), 240)

    entries = folder.rounds()
    assert [entry["round"] for entry in entries] == list(range(1, ROUNDS + 1)), flower.logs()
    assert entries[0]["clients"] == entries[-1]["clients"] == 3
    assert 0.0 <= folder.metrics()["accuracy"] <= 1.0
    assert f"going on after round {rounds}" in federation.said("run")
    assert "client client-1 plays partition 1 of 3" in federation.said("client-1")
    for name in ("client-0", "client-2"):
        assert "Connection attempt failed, retrying" in federation.said(name)
        assert "Connection successful after" in federation.said(name)
    _check_masked(federation, tmp_path)


def _check_masked(federation: Federation, folder: Path) -> None:
    """A round whose updates are masked, with signed keys: as in one process, without a client."""
    for name in ("one-process", "masked"):
        config = f'{MASKED} output-dir="{folder}" name="{name}"'
        if name == "masked":
            federation.run(config)
            wait_for(lambda: federation.has_ended("run"), 120)
        else:
            run_serially(FlowerApp.read(ROOT), parse_pairs(config), len(CLIENTS), {})
    [wanted], [found] = (RunFolder(folder / name).rounds() for name in ("one-process", "masked"))
    for entry in (wanted, found):
        assert [client["client"] for client in entry["per-client"]] == [0, 2]
    assert found["posterior-sha256"] == wanted["posterior-sha256"], federation.said("run")
