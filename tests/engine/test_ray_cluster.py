"""RAY_ADDRESS: a simulation joins a Ray cluster, and leaves it running."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bfl.results.run_folder import RunFolder

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent
SETTINGS = 'model="resnet8" rounds=1 local-epochs=1 mc-samples=2 evaluate-mc-samples=1'


def executable(name: str) -> str:
    """Return the path of a command of the environment that runs the tests."""
    for folder in (Path(sysconfig.get_path("scripts")), Path(sys.executable).parent):
        if (folder / name).is_file():
            return str(folder / name)
    pytest.fail(f"{name} is not installed beside {sys.executable}")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as sock:
        sock.settimeout(1)
        return sock.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    """Return the environment in which a cluster of two CPUs can be joined, by its token."""
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
    command = [executable("ray"), "start", "--head", "--block", f"--port={port}", "--num-cpus=2"]
    command += ["--node-ip-address=127.0.0.1", "--include-dashboard=false"]
    with (folder / "log").open("wb") as log:
        # With --block, Ray's processes are children of this one and end with it.
        process = subprocess.Popen(
            [*command, f"--temp-dir={folder}"], env=environment, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 60
        while not listens(port):
            if time.monotonic() > deadline or process.poll() is not None:
                pytest.fail(f"Ray has not started: {(folder / 'log').read_text()}")
            time.sleep(0.2)
        yield {**environment, "RAY_ADDRESS": f"127.0.0.1:{port}"}
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def simulate(
    output_dir: Path, name: str, environment: dict[str, str], *more: str
) -> subprocess.CompletedProcess[str]:
    run_config = f'{SETTINGS} output-dir="{output_dir}" name="{name}"'
    command = [executable("flower-simulation"), "--app", str(ROOT), "--num-supernodes", "2"]
    return subprocess.run(
        [*command, "--run-config", run_config, *more],
        env=environment,
        cwd=output_dir,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150,
        check=False,
    )


def digest(folder: Path) -> str:
    return str(RunFolder(folder).rounds()[-1]["posterior-sha256"])


def test_same_posterior_and_the_cluster_stays(cluster: dict[str, str], tmp_path: Path) -> None:
    serial = simulate(tmp_path, "serial", dict(os.environ), "--backend", "serial")
    assert serial.returncode == 0, serial.stdout
    joined = simulate(tmp_path, "cluster", cluster)
    assert joined.returncode == 0, joined.stdout
    assert digest(tmp_path / "cluster") == digest(tmp_path / "serial")
    assert listens(int(cluster["RAY_ADDRESS"].rpartition(":")[2]))


def test_cluster_has_its_own_resources(cluster: dict[str, str], tmp_path: Path) -> None:
    refused = simulate(
        tmp_path, "run", cluster, "--backend-config", '{"init_args": {"num_cpus": 1}}'
    )
    assert refused.returncode == 2
    assert "init_args has num_cpus, but the run joins the Ray cluster at" in refused.stdout


@pytest.mark.parametrize("wrong", ["address", "token"])
def test_cluster_that_cannot_be_joined(wrong: str, cluster: dict[str, str], tmp_path: Path) -> None:
    """The command says so at once, and does not wait for nodes that cannot come."""
    environment = dict(cluster)
    if wrong == "token":
        environment.pop("RAY_AUTH_MODE")
    else:
        environment["RAY_ADDRESS"] = f"127.0.0.1:{free_port()}"
    failed = simulate(tmp_path, "run", environment)
    assert failed.returncode == 1
    assert "failed: cannot join the Ray cluster at 127.0.0.1:" in failed.stdout
    assert ("it asks for a token: set RAY_AUTH_MODE=token" in failed.stdout) == (wrong == "token")
