"""A real federation on loopback: the simulation's posterior, and nobody else let in."""

import os
import re
import shutil
import signal
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from flower_processes import (
    ROOT,
    Flower,
    check_complete,
    descendants,
    end_processes,
    executable,
    final_digest,
    free_ports,
    run_config,
    wait_for,
)

from bfl.deployment import setup
from bfl.deployment.settings import ServerSettings
from bfl.experiments.results.run_folder import RunFolder

pytestmark = [pytest.mark.slow, pytest.mark.long]

SCRIPT = str(ROOT / "scripts" / "federation.sh")


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


def command_lines(roots: set[int]) -> str:
    """Return what any user of the machine sees of processes."""
    pids = ",".join(map(str, descendants(roots))) or "1"
    listing = subprocess.run(
        ["ps", "-ww", "-o", "args=", "-p", pids], capture_output=True, text=True, check=False
    )
    return listing.stdout


# The whole ------------------------------------------------------------------------------------


def test_the_posterior_is_that_of_the_simulation_and_no_secret_is_told(
    flower: Flower, serial_digest: str, tmp_path: Path
) -> None:
    """Clients have folders of their own, whose images are those of the simulation's clients."""
    process = flower.start(
        *("env", f"TMPDIR={tmp_path}", "BFL_KEEP_LOGS=1", SCRIPT, "--clients", "2"),
        *("--run-config", run_config(tmp_path / "runs", "run")),
    )
    seen, over = set(), threading.Event()

    def look() -> None:
        while not over.wait(0.5):
            seen.update(command_lines({process}).splitlines())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        wait_for(lambda: not descendants({process}) or _has_ended(process), 400)
    finally:
        over.set()
        looking.join()
    run = tmp_path / "runs" / "run"
    assert run.is_dir(), flower.logs()
    check_complete(run, {"rounds": 1, "clients": 2, "model": "mlp"})
    assert final_digest(run) == serial_digest
    entry = RunFolder(run).rounds()[-1]
    assert entry["clients"] == 2
    [scratch] = [path.parent for path in tmp_path.glob("bfl-flower.*/federation")]
    secrets = secrets_of(scratch / "federation")
    # Keys of the authority, the server and two clients, of several lines each; and the secret.
    assert len(secrets) > 8
    assert files_with(secrets, tmp_path) == {
        f"{scratch.name}/federation/{name}"
        for name in (
            *("authority/ca.key", "server/server.key", "server/superexec.secret"),
            *("clients/client-0/client.key", "clients/client-1/client.key"),
            # Of the port between a SuperNode and its worker, made anew at each start.
            *("clients/client-0/state/runtime.key", "clients/client-1/state/runtime.key"),
        )
    }
    for path in scratch.rglob("*.key"):
        assert path.stat().st_mode & 0o077 == 0, path
    told = "\n".join(seen).encode()
    assert b"superlink.py" in told
    assert b"client.key" in told
    assert not [secret for secret in secrets if secret in told]


def _has_ended(pid: int) -> bool:
    listing = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listing.stdout.strip()[:1] in ("", "Z")


def test_ctrl_c_stops_all(flower: Flower, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    process = subprocess.Popen(
        [SCRIPT, "--run-config", run_config(tmp_path, "run")],
        cwd=flower.work,
        env={**flower.environment, "TMPDIR": str(tmp_path / "scratch")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    flower.started.add(process.pid)
    logs = tmp_path / "scratch"

    def said(name: str, text: str) -> bool:
        return any(text in path.read_text() for path in logs.glob(f"bfl-flower.*/logs/{name}"))

    wait_for(lambda: said("server", "ControlServicer.StartRun"), 180)
    family = descendants({process.pid})
    assert len(family) > 8
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    wait_for(lambda: all(_has_ended(pid) for pid in family), 30)
    assert not list(logs.glob("bfl-flower.*"))


# Nobody else ----------------------------------------------------------------------------------


class Server:
    """A server that runs, and who calls it."""

    def __init__(self, flower: Flower, folder: Path) -> None:
        self.flower = flower
        self.port, superlink = free_ports(2)
        settings = ServerSettings(
            hosts=("localhost",), bind="127.0.0.1", port=self.port, superlink_port=superlink
        )
        self.federation = setup.init(folder / "federation", settings, 2, datetime.now(UTC))
        self.others = setup.init(folder / "others", settings, 1, datetime.now(UTC))
        self.log = flower.folder / f"sh-{len(flower.started)}.log"
        self.process = flower.start("sh", str(self.federation.server / "start.sh"))
        wait_for(lambda: self.said("clients call"), 120)

    def said(self, text: str) -> bool:
        """Return whether the server has said something."""
        return text in self.log.read_text(errors="replace")

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
    flower, federation = server.flower, server.federation
    impostor = federation.client("client-1")
    own = (impostor / "identity.toml").read_text()
    (impostor / "identity.toml").write_text(own.replace("partition-id = 1", "partition-id = 0"))
    node = flower.start("sh", str(impostor / "start.sh"))
    node_log = flower.folder / f"sh-{len(flower.started) - 1}.log"
    wait_for(lambda: server.said("Activated node_id"), 90)
    flower.environment["FLWR_HOME"] = str(federation.server / "state" / "flower")
    run = flower.start(
        *(str(ROOT / "scripts" / "flwr-run.sh"), "federation"),
        *("--run-config", run_config(tmp_path, "run", "node-timeout=75")),
    )
    run_log = flower.folder / f"flwr-run.sh-{len(flower.started) - 1}.log"
    # The node has been asked who it is, so there is something to be had.
    wait_for(lambda: "query message" in node_log.read_text(), 90)
    _check_outsiders(server)
    _check_the_door(server)
    wait_for(lambda: _has_ended(run), 200)
    text = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", run_log.read_text()).split())
    assert "it has the key of client client-1, which the list of clients binds to" in text
    assert "reports partition 0" in text
    assert "0 of 2 nodes are there" in text or "0 of 1 nodes are there" in text
    assert not (tmp_path / "run").exists()
    assert "train message" not in node_log.read_text()
    _check_ports(node)
    _check_revoked(server, node, impostor)
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
            if b"\0proxy\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(proxy, signal.SIGKILL)
        wait_for(lambda: not answers(), 10)
        wait_for(answers, 30)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://localhost:{server.port}/", trust_env=False)


def _listening(pids: set[int]) -> set[str]:
    """Return the addresses (hexadecimal) on which processes take connections."""
    found, inodes = set(), set()
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed since
                inodes.add(descriptor.readlink().name.removeprefix("socket:").strip("[]"))
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(fields[1])
    return found


def _check_ports(node: int) -> None:
    """A client's worker, which is warm by now, opens no port; its SuperNode has one on loopback."""
    family = descendants({node})
    [worker] = [
        pid for pid in family if b"warm_worker.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert not _listening(descendants({worker}))
    [address] = _listening(family)
    assert address.startswith("0100007F:")


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
