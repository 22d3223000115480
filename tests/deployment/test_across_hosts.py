"""A federation across hosts: links that are cut, and clients and servers that are killed."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from flower_processes import ROOT, Flower, end_processes, run_config, wait_for
from installed import executable

from bfl import randomness
from bfl.configuration import resolve
from bfl.configuration.settings import parse_pairs
from bfl.data.datasets import load_dataset
from bfl.data.datasets.subset import train_positions
from bfl.deployment.private_files import FederationFolder
from bfl.engine.flower.app import FlowerApp, run_serially
from bfl.experiments.results.run_folder import RunFolder

pytestmark = [pytest.mark.slow, pytest.mark.long]

SERVER, NAME = "server", "fed.example.org"
CLIENTS = ("client-0", "client-1", "client-2")
ADDRESSES = {SERVER: "10.77.0.1", **{name: f"10.77.0.1{n}" for n, name in enumerate(CLIENTS)}}
ROUNDS = 5
MASKED = (
    'exchange="masked" closing="none" partition="dirichlet" alpha=0.3 batch-size=16 '
    'model="mlp" strategy="ws" train-examples=200 rounds=1 local-epochs=1 mc-samples=1'
)


NAMES = Path("/etc/netns")
"""Where ``ip netns exec`` finds files that stand for those of /etc in a namespace."""


def why_not() -> str:
    """Return why hosts cannot be made here; empty: they can."""
    if not shutil.which("ip"):
        return "there is no command ip (Debian: apt-get install iproute2)"
    if os.geteuid() != 0:
        return "network namespaces are root's to make"
    name = f"bfl-try-{os.getpid()}"
    veth = ("link", "add", "name", "eth0", "netns", name, "type", "veth", "peer", "name", "eth1")
    try:
        for words in (("netns", "add", name), (*veth, "netns", name)):
            tried = subprocess.run(["ip", *words], capture_output=True, text=True)
            if tried.returncode:
                return f"ip {words[0]} add does not work here: {tried.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)
    return ""


class Hosts:
    """Hosts with addresses of their own, connected by a switch.

    Args:
        addresses: The address (IPv4) of each host, by its name.
        names: What all hosts call an address, by name.
    """

    def __init__(self, addresses: Mapping[str, str], names: Mapping[str, str]) -> None:
        self._prefix = f"bfl-{os.getpid()}-"
        self._hosts = list(addresses)
        self._switch = f"{self._prefix}switch"
        hosts = "".join(f"{address} {name}\n" for name, address in names.items())
        try:
            _ip("netns", "add", self._switch)
            _ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
            _ip("-n", self._switch, "link", "set", "bridge", "up")
            for number, (host, address) in enumerate(addresses.items()):
                self._add(host, address, f"port{number}", hosts)
        except BaseException:
            self.remove()
            raise

    def _add(self, host: str, address: str, port: str, hosts: str) -> None:
        space = self._space(host)
        folder = NAMES / space
        folder.mkdir(parents=True)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n{hosts}")
        _ip("netns", "add", space)
        ends = ("name", "eth0", "netns", space, "type", "veth")
        _ip("link", "add", *ends, "peer", "name", port, "netns", self._switch)
        _ip("-n", self._switch, "link", "set", port, "master", "bridge", "up")
        _ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "lo", "up")
        _ip("-n", space, "link", "set", "eth0", "up")

    def on(self, host: str, *command: str) -> tuple[str, ...]:
        """Return a command as one that runs on a host."""
        return ("ip", "netns", "exec", self._space(host), *command)

    def link(self, host: str, state: str) -> None:
        """Cut a host's link (``down``), or restore it (``up``), at the switch."""
        port = f"port{self._hosts.index(host)}"
        _ip("-n", self._switch, "link", "set", port, state)

    def remove(self) -> None:
        """Remove all that was made; the processes have ended by then."""
        for space in (self._switch, *map(self._space, self._hosts)):
            subprocess.run(["ip", "netns", "delete", space], capture_output=True)
            shutil.rmtree(NAMES / space, ignore_errors=True)

    def _space(self, host: str) -> str:
        return f"{self._prefix}{host}"


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert not done.returncode, f"ip {' '.join(words)}: {done.stderr}"


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    if reason := why_not():
        pytest.skip(reason)
    made = Hosts(ADDRESSES, {NAME: ADDRESSES[SERVER]})
    try:
        yield made
    finally:
        made.remove()


def part_of_masked(client: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the images and labels that a client of the masked round has in one process."""
    configuration = resolve(parse_pairs(MASKED))
    digits = load_dataset("digits")
    used = train_positions(digits, configuration.keys.train_examples)
    generator = randomness.generator(configuration.keys.seed, "partition")
    part = configuration.partition.split(digits.train_labels[used], len(CLIENTS), generator)[client]
    return digits.train_images[used[part]], digits.train_labels[used[part]]


class Federation:
    """A server and three clients, each on a host of its own.

    Args:
        flower: Starts processes.
        hosts: The hosts.
        folder: A temporary folder.
    """

    def __init__(self, flower: Flower, hosts: Hosts, folder: Path) -> None:
        self.flower, self.hosts = flower, hosts
        self.made = FederationFolder(folder / "federation")
        self.bfl("init", "--host", NAME, "--clients", "2")
        self.logs: dict[str, list[Path]] = {}
        self.pids: dict[str, int] = {}

    def bfl(self, command: str, *words: str) -> None:
        """Change the federation's folder, as its operator does."""
        folder = str(self.made.path)
        done = self.flower.run(executable("bfl"), "federation", command, folder, *words)
        assert done.returncode == 0, done.stdout

    def add_client(self, name: str, folder: Path) -> None:
        """Add a client with a key that it has made by itself and data of its own; then each client
        knows all of them.
        """
        key = folder / "client.key"
        words = ("ssh-keygen", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(key))
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        self.bfl("add-client", name, "--public-key", f"{key}.pub")
        key.rename(self.made.client(name) / "client.key")
        for each in CLIENTS:  # of masked rounds: whom each of them knows by itself
            shutil.copy(self.made.server / "clients.toml", self.made.client(each))
            data = 'dataset = "npz:data.npz"\n' if each == name else ""
            node = self.made.client(each) / "node.toml"
            node.write_text(f'clients-list = "clients.toml"\n{data}')
        images, labels = part_of_masked(CLIENTS.index(name))
        np.savez(
            self.made.client(name) / "data.npz",
            x_train=images,
            y_train=labels,
            x_test=images,
            y_test=labels,
        )

    def start(self, host: str) -> None:
        folder = self.made.server if host == SERVER else self.made.client(host)
        self._start(host, host, "sh", str(folder / "start.sh"))

    def run(self, config: str) -> None:
        command = (executable("bfl"), "federation", "run", str(self.made.server))
        self._start("run", SERVER, *command, "--run-config", config)

    def _start(self, name: str, host: str, *command: str) -> None:
        self.pids[name] = self.flower.start(*self.hosts.on(host, *command))
        self.logs.setdefault(name, []).append(self.flower.newest_log)

    def said(self, name: str) -> str:
        folder = self.made.server if name == SERVER else self.made.client(name)
        logs = [*self.logs[name], *folder.glob("state/flower.log")]
        text = " ".join(log.read_text(errors="replace") for log in logs)
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

    def wait_until(self, what: Callable[[], bool], seconds: float) -> None:
        try:
            wait_for(what, seconds)
        except TimeoutError:
            pytest.fail(self.flower.logs())

    def wait_for(self, name: str, text: str, seconds: float) -> None:
        try:
            wait_for(lambda: text in self.said(name), seconds)
        except TimeoutError:
            pytest.fail(f"{name} has not said '{text}':\n{self.flower.logs()}")


def test_a_run_outlives_links_clients_and_the_server(
    flower: Flower, hosts: Hosts, tmp_path: Path
) -> None:
    federation = Federation(flower, hosts, tmp_path)
    federation.start(SERVER)
    federation.wait_for(SERVER, "clients call", 120)
    federation.add_client(CLIENTS[2], tmp_path)  # the server sees it, and takes it over
    for host in CLIENTS:
        federation.start(host)
    limits = "evaluate-every=0 node-timeout=150 client-timeout=120"
    config = run_config(tmp_path, "run", limits).replace("rounds=1", f"rounds={ROUNDS}")
    federation.run(config)
    folder = RunFolder(tmp_path / "run")
    wait_for(lambda: len(folder.rounds()) >= 1, 200)

    # In the second round a client is killed, and the link of another one is cut for a while: when
    # it has its task, for one that is on its way then is lost, and the round waits for it.
    federation.kill("client-1")
    task = r"ROUND 2\] INFO : Receiving: train message \S+ \S+ INFO : Received successfully"
    federation.wait_until(lambda: re.search(task, federation.said("client-2")) is not None, 200)
    hosts.link("client-2", "down")
    time.sleep(8)
    hosts.link("client-2", "up")
    federation.bfl("renew")

    def second_round() -> bool:
        if federation.has_ended("client-1"):  # as systemd does
            time.sleep(1)
            federation.start("client-1")
        return len(folder.rounds()) >= 2

    federation.wait_until(second_round, 200)
    # The client whose link was cut has lost nothing by it. Flower hands the killed one its request
    # once more if it is back before its absence is seen; else it has failed, which the log tells.
    replied = {client["client"] for client in folder.rounds()[1]["per-client"]}
    assert 2 in replied
    if 1 not in replied:
        federation.wait_for("run", "client-1: failed: Error: Node Unavailable", 200)
    # The server's host fails, with all that runs on it; when it is back, with the new certificate.
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
    assert f"resumes after round {rounds}" in federation.said("run")
    assert "client client-1: has partition 1 of 3" in federation.said("client-1")
    for name in ("client-0", "client-2"):  # when the server was killed
        _, failed, after = federation.said(name).rpartition("Connection attempt failed, retrying")
        assert failed, flower.logs()
        assert f"ROUND {ROUNDS}] INFO : Sending: train message" in after, flower.logs()
    _check_masked(federation, tmp_path)


def _check_masked(federation: Federation, folder: Path) -> None:
    """A round whose updates are masked, with signed keys and own data: as in one process."""
    for name in ("one-process", "masked"):
        config = f'{MASKED} output-dir="{folder}" name="{name}"'
        if name == "masked":
            federation.run(config)
            wait_for(lambda: federation.has_ended("run"), 120)
        else:
            run_serially(FlowerApp.read(ROOT), parse_pairs(config), len(CLIENTS), {})
    [wanted], [found] = (RunFolder(folder / name).rounds() for name in ("one-process", "masked"))
    for entry in (wanted, found):
        assert [client["client"] for client in entry["per-client"]] == [0, 1, 2]
    assert found["posterior-sha256"] == wanted["posterior-sha256"], federation.said("run")
