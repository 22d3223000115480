"""A real federation on loopback: the simulation's posterior, and nobody else let in."""

import os
import re
import runpy
import shutil
import signal
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import httpx
import numpy as np
import pytest
from flower_processes import (
    ROOT,
    Flower,
    descendants,
    end_processes,
    executable,
    free_ports,
    wait_for,
)

from bfl.configuration.settings import parse_pairs
from bfl.deployment import setup
from bfl.deployment.settings import ServerSettings
from bfl.engine.flower.app import FlowerApp, run_serially
from bfl.experiments.results.run_folder import RunFolder
from bfl.federation.state import Snapshots

pytestmark = [pytest.mark.slow, pytest.mark.long]

SETTINGS = (
    'strategy="pvi" optimizer-state="keep" model="mlp" rounds=2 local-epochs=1 mc-samples=2 '
    'evaluate-mc-samples=1 figures="none" closing="none"'
)
"""Clients keep a factor and an optimizer's state from round to round."""


def secrets_of(federation: Path) -> set[bytes]:
    """Return what nobody but its owner may see: the lines of private keys, and the secret."""
    keys = [line for path in federation.rglob("*.key") for line in path.read_bytes().splitlines()]
    found = {line for line in keys if len(line) > 30 and b"PRIVATE KEY" not in line}
    # The first lines of an OpenSSH key are a header and the public half.
    common = set.intersection(*({*p.read_bytes().splitlines()} for p in federation.rglob("c*.key")))
    secret = (federation / "server" / "superexec.secret").read_bytes()
    return (found - common) | {secret}


def files_with(secrets: set[bytes], folder: Path) -> set[str]:
    """Return the files below a folder that hold a secret."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and any(secret in path.read_bytes() for secret in secrets)
    }


def _has_ended(pid: int) -> bool:
    listing = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listing.stdout.strip()[:1] in ("", "Z")


class Server:
    """A server that runs, and who calls it."""

    def __init__(self, flower: Flower, folder: Path) -> None:
        self.flower = flower
        script = runpy.run_path(str(ROOT / "scripts" / "federation.py"))
        self.federation = script["make"](folder / "federation", 2)
        script["give_data"](self.federation, 2, [SETTINGS])
        settings = ServerSettings.read(self.federation.server / "server.toml")
        self.port = settings.port
        self.others = setup.init(folder / "others", settings, "1", datetime.now(UTC))
        self.process = self.start(self.federation.server)
        self.log = flower.newest_log
        wait_for(lambda: self.said("clients call"), 120)

    def start(self, folder: Path) -> int:
        """Start the server or a client by its script."""
        return self.flower.start("sh", str(folder / "start.sh"))

    def run(self, config: str) -> int:
        """Start a run."""
        command = (executable("bfl"), "federation", "run", str(self.federation.server))
        return self.flower.start(*command, "--run-config", config)

    def said(self, text: str) -> bool:
        """Return whether the server or Flower has said something."""
        logs = [self.log, *self.federation.server.glob("state/flower.log")]
        return any(text in log.read_text(errors="replace") for log in logs)

    def node(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a SuperNode that must not be let in, with a Flower home of its own."""
        (port,) = free_ports(1)
        self.home(name).mkdir()
        # To a file: processes that it leaves for some seconds would hold a pipe open.
        with (self.home(name) / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    *(executable("flower-supernode"), "--superlink", f"localhost:{self.port}"),
                    *("--host", "127.0.0.1", "--port", str(port), "--max-retries", "1", *words),
                    *("--node-config", "partition-id=0 num-partitions=2"),
                ],
                cwd=self.flower.work,
                env={**self.flower.environment, "FLWR_HOME": str(self.home(name))},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.flower.started.add(process.pid)
        return process

    def check_refused(self, name: str, process: subprocess.Popen[bytes], reason: str) -> None:
        """Check that a node has given up, for a reason, and has got nothing."""
        log = self.home(name) / "log"
        # Its process may hang after that: Flower waits for a thread that a refusal has ended.
        wait_for(lambda: "Exit Code: " in log.read_text(errors="replace"), 90)
        end_processes({process.pid})
        said = log.read_text(errors="replace")
        assert reason in said, f"{name}: {said}"
        assert "Exit Code: 305" in said, f"{name}: {said}"
        assert not re.search(r"(query|train|evaluate) message", said), name
        got = [path.name for path in self.home(name).rglob("*") if path.suffix in (".py", ".fab")]
        assert not got, name

    def home(self, name: str) -> Path:
        """Return the Flower home of a node that must not be let in."""
        return self.flower.folder / f"home-{name}"


@pytest.fixture(scope="module")
def server(flower: Flower, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(flower, tmp_path_factory.mktemp("locked"))
    try:
        yield started
    finally:
        end_processes({started.process})


def test_nobody_else_gets_anything_while_a_run_waits(server: Server, tmp_path: Path) -> None:
    """A run is there to be taken part in. Its only node has a key of the list, and says that it
    plays the partition of another key."""
    impostor = server.federation.client("client-1")
    own = (impostor / "identity.toml").read_text()
    (impostor / "identity.toml").write_text(own.replace("partition-id = 1", "partition-id = 0"))
    node = server.start(impostor)
    node_log = impostor / "state" / "flower.log"
    try:
        wait_for(lambda: server.said("Activated node_id"), 90)
        # Long enough for the node to answer while outsiders load the machine.
        run = server.run(f'{SETTINGS} output-dir="{tmp_path}" name="run" node-timeout=120')
        run_log = server.flower.newest_log
        # The node has been asked who it is, so there is something to be had.
        wait_for(lambda: "query message" in node_log.read_text(), 90)
        _check_outsiders(server)
        _check_the_door(server)
        wait_for(lambda: _has_ended(run), 300)
        text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", run_log.read_text()).split())
        assert "it has the key of client client-1, which the list of clients binds to" in text
        assert "reports partition 0" in text
        assert "0 of 2 nodes are there" in text
        assert not (tmp_path / "run").exists()
        assert "train message" not in node_log.read_text()
    finally:  # the next test starts this client anew
        end_processes({node})
        (impostor / "identity.toml").write_text(own)


def test_the_posterior_is_that_of_one_process_and_no_secret_is_told(
    server: Server, tmp_path: Path
) -> None:
    """Also of clients that keep states; then one of them is revoked, and the server ended."""
    run_serially(
        FlowerApp.read(ROOT),
        parse_pairs(f'{SETTINGS} output-dir="{tmp_path}" name="serial"'),
        2,
        {},
    )
    made = server.federation
    nodes = [server.start(made.client(f"client-{number}")) for number in range(2)]
    process = server.run(f'{SETTINGS} output-dir="{tmp_path}" name="run"')
    wait_for(lambda: _has_ended(process), 300)
    assert (tmp_path / "run").is_dir(), server.flower.logs()
    assert 0.0 <= RunFolder(tmp_path / "run").metrics()["accuracy"] <= 1.0
    found, wanted = (RunFolder(tmp_path / name).rounds() for name in ("run", "serial"))
    for entry, other in zip(found, wanted, strict=True):
        assert entry["clients"] == 2
        assert entry["posterior-sha256"] == other["posterior-sha256"]
    assert not (tmp_path / "run" / "clients").exists()
    for number in range(2):
        [folder] = (made.client(f"client-{number}") / "state" / "client").glob("*/*")
        kept = Snapshots(folder, kept=3).at(2)
        assert kept is not None
        assert np.abs(kept["part.factors.factor-precision"]).max() > 0
        assert any(key.startswith("optimizer.") for key in kept)
    secrets = secrets_of(made.path)
    # Keys of the authority, the server and two clients, of several lines each; and the secret.
    assert len(secrets) > 8
    assert not files_with(secrets, tmp_path) | files_with(secrets, server.flower.folder)
    assert files_with(secrets, made.path) == {
        *("authority/ca.key", "server/server.key", "server/superexec.secret"),
        *("clients/client-0/client.key", "clients/client-1/client.key"),
        # Of the port between a SuperNode and its worker, made anew at each start.
        *("clients/client-0/state/runtime.key", "clients/client-1/state/runtime.key"),
    }
    for path in made.path.rglob("*.key"):
        assert path.stat().st_mode & 0o077 == 0, path
    _check_revoked(server, nodes[1], made.client("client-1"))
    _check_ctrl_c(server)


def _check_outsiders(server: Server) -> None:
    federation, others = server.federation, server.others
    ca, other_ca = str(federation.server / "ca.crt"), str(others.server / "ca.crt")
    key = str(federation.client("client-0") / "client.key")
    other_key = str(others.client("client-0") / "client.key")
    roots, auth = "--root-certificates", "--auth-supernode-private-key"
    attempts = {
        "no-certificate": ((auth, key), "CERTIFICATE_VERIFY_FAILED"),
        "another-authority": ((roots, other_ca, auth, key), "CERTIFICATE_VERIFY_FAILED"),
        "unregistered-key": ((roots, ca, auth, other_key), "[code: 2004]"),
        "no-key": ((roots, ca), "404"),
        "plain-text": (("--insecure",), "Failed to initialize the connection"),
    }
    nodes = {name: server.node(name, *words) for name, (words, _) in attempts.items()}
    for name, (_, reason) in attempts.items():
        server.check_refused(name, nodes[name], reason)


def _check_the_door(server: Server) -> None:
    """Whoever has the authority's certificate, which is no secret, can neither run nor register."""
    trusted = ssl.create_default_context(cafile=str(server.federation.server / "ca.crt"))
    url = f"https://localhost:{server.port}"
    with httpx.Client(verify=trusted, trust_env=False) as caller:
        for path in ("/", "/health", "/docs", "/openapi.json"):
            assert caller.get(f"{url}{path}").status_code == 404, path
        for path in ("control/start-run", "control/register-node", "runtime/acquire-task"):
            assert caller.post(f"{url}/v1/{path}", content=b"").status_code == 404, path
        unsigned = caller.post(
            f"{url}/v1/fleet/pull-messages",
            content=b"",
            headers={"content-type": "application/protobuf"},
        )
        assert unsigned.status_code == 401

        def answers() -> bool:
            with suppress(httpx.ConnectError):
                return caller.get(url).status_code == 404
            return False

        # The proxy's end is not the server's, nor the run's.
        [proxy] = [
            pid
            for pid in descendants({server.process})
            if b"bfl.deployment.proxy\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(proxy, signal.SIGKILL)
        wait_for(lambda: not answers(), 10)
        wait_for(answers, 30)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://localhost:{server.port}/", trust_env=False)


def _check_ctrl_c(server: Server) -> None:
    """Ctrl-C at start.sh stops the server and all that it has started."""
    family = descendants({server.process})
    assert len(family) > 3
    os.kill(server.process, signal.SIGINT)
    try:
        wait_for(lambda: all(_has_ended(pid) for pid in family), 30)
    finally:
        end_processes(family)


def _check_revoked(server: Server, node: int, folder: Path) -> None:
    """A revoked client that is there is put out, and not let in again."""
    kept = server.flower.folder / "kept"
    shutil.copytree(folder, kept)
    done = server.flower.run(
        *(executable("bfl"), "federation", "revoke-client", str(server.federation.path)), "client-1"
    )
    assert done.returncode == 0, done.stdout
    wait_for(lambda: server.said("client client-1 is revoked"), 60)
    wait_for(lambda: _has_ended(node), 60)
    ca = str(server.federation.server / "ca.crt")
    again = server.node(
        "revoked",
        *("--root-certificates", ca),
        *("--auth-supernode-private-key", str(kept / "client.key")),
    )
    server.check_refused("revoked", again, "[code: 2004]")
