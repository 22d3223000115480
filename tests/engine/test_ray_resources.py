"""What fits on Ray's nodes, and who reaches them: counted from declared resources, with advice.

GPUs are declared to Ray, which schedules by numbers; nothing here computes on one.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from bfl.engine import ray_cluster
from bfl.engine.flower.app import FlowerApp
from bfl.engine.flower.simulation import RayEngine
from bfl.errors import ConfigurationError

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def engine() -> Iterator[RayEngine]:
    """Return an engine on a Ray that believes it has a GPU, a quarter of it for each client."""
    backend = {
        "init_args": {"num_cpus": 3, "num_gpus": 1},
        "client_resources": {"num_cpus": 0.5, "num_gpus": 0.25},
    }
    with RayEngine(FlowerApp.read(ROOT), backend, most_clients=10) as engine:
        yield engine


@pytest.mark.slow
def test_as_many_actors_as_fractions_of_gpus(
    engine: RayEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six would fit by CPUs, four by GPUs; what does not fit on one node is refused."""
    assert len(engine.actors) == 4
    for name in ("connect", "disconnect"):  # on the Ray that is there
        monkeypatch.setattr(ray_cluster, name, lambda *_: None)
    asked = {"client_resources": {"num_cpus": 1, "num_gpus": 1.5}}
    larger = RayEngine(FlowerApp.read(ROOT), asked, most_clients=1)
    with pytest.raises(ConfigurationError, match=r"asks for 1 CPUs and 1.5 GPUs .*no node of Ray"):
        larger.__enter__()


@pytest.mark.slow
def test_nobody_else_reaches_it(engine: RayEngine) -> None:
    """Neither from another host nor, without the token, from this one."""
    (node,) = ray.nodes()
    context = ray.get_runtime_context()
    gcs = int(context.gcs_address.rpartition(":")[2])
    for port in (gcs, node["NodeManagerPort"], node["ObjectManagerPort"]):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        with pytest.raises(ConnectionRefusedError):  # what listens on all interfaces has this one
            socket.create_connection(("127.0.0.2", port), timeout=5)
    strangers = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    stranger = "import sys; from ray._raylet import GcsClient; GcsClient(address=sys.argv[1])"
    refused = subprocess.run(
        [sys.executable, "-c", stranger, context.gcs_address],
        env=strangers,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert refused.returncode == 1
    assert "InvalidAuthToken" in refused.stderr

    token = str(ray.get(ray.remote(lambda: os.environ["RAY_AUTH_TOKEN"]).remote()))
    processes = [path.read_bytes() for path in Path("/proc").glob("[1-9]*/cmdline")]
    assert not any(token.encode() in line for line in processes)
