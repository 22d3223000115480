"""RAY_ADDRESS: a simulation joins a Ray cluster, and leaves it running."""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from installed import executable

from bfl.configuration.settings import parse_pairs
from bfl.engine.flower.app import FlowerApp, run_serially
from bfl.experiments.results.run_folder import RunFolder

pytestmark = [pytest.mark.slow, pytest.mark.long]

ROOT = Path(__file__).resolve().parent.parent.parent
SETTINGS = (
    'model="mlp" rounds=1 local-epochs=1 mc-samples=2 evaluate-mc-samples=1 figures="none" '
    'closing="none"'
)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as sock:
        sock.settimeout(1)
        return sock.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def node(folder: Path, environment: dict[str, str], *options: str) -> Iterator[None]:
    """Run a Ray node of one CPU; with --block, its processes are children and end with it."""
    command = [executable("ray"), "start", "--block", "--num-cpus=1", *options]
    command += ["--node-ip-address=127.0.0.1"]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()


def wait_for(what: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + 300
    while not what():
        if time.monotonic() > deadline:
            pytest.fail(f"Ray has not started: {(folder / 'log').read_text()}")
        time.sleep(0.2)


def nodes(environment: dict[str, str]) -> int:
    """Return the number of nodes of the cluster."""
    command = [executable("ray"), "status", "--address", environment["RAY_ADDRESS"]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stdout.partition("Active:")[2].partition("Pending:")[0].count("node_")


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    """Return the environment in which a cluster of two nodes, each of one CPU, can be joined."""
    # Not pytest's folder: the path of a Unix socket has at most 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    port = free_port()
    environment = {
        **os.environ,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
    }
    environment.pop("RAY_ADDRESS", None)
    joined = {**environment, "RAY_ADDRESS": f"127.0.0.1:{port}"}
    head = ("--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}")
    try:
        with node(folder, environment, *head):
            wait_for(lambda: listens(port), folder)
            with node(folder, environment, f"--address=127.0.0.1:{port}"):
                wait_for(lambda: nodes(joined) == 2, folder)
                yield joined
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def simulate(
    output_dir: Path, name: str, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    run_config = f'{SETTINGS} output-dir="{output_dir}" name="{name}"'
    command = [executable("flower-simulation"), "--app", str(ROOT), "--num-supernodes", "2"]
    return subprocess.run(
        [*command, "--run-config", run_config],
        env=environment,
        cwd=output_dir,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
        check=False,
    )


def digest(folder: Path) -> str:
    return str(RunFolder(folder).rounds()[-1]["posterior-sha256"])


def test_same_posterior_and_the_cluster_stays(cluster: dict[str, str], tmp_path: Path) -> None:
    """Each node has room for one of the two actors, so both are needed."""
    here = parse_pairs(f'{SETTINGS} output-dir="{tmp_path}" name="serial"')
    run_serially(FlowerApp.read(ROOT), here, 2, {})
    joined = simulate(tmp_path, "cluster", cluster)
    assert joined.returncode == 0, joined.stdout
    assert digest(tmp_path / "cluster") == digest(tmp_path / "serial")
    assert nodes(cluster) == 2
