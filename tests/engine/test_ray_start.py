"""What starts with Ray: a Ray of one's own or a cluster, and what its processes import."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray

from bfl.engine import ray_cluster
from bfl.errors import ConfigurationError, RunError

ROOT = Path(__file__).resolve().parent.parent.parent
IMPORTS = """
import sys
import bfl.engine.flower
import flwr.simulation.ray_transport.ray_actor  # as an actor does before anything of this project
import bfl.keras
assert "tensorflow" in sys.modules
print(sorted(name for name in sys.modules if name.split(".")[0] == "keras"))
"""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return a mapping that gets what Ray is started with, in place of Ray."""
    seen: dict[str, Any] = {}

    def init(**arguments: Any) -> None:
        seen.update(arguments, path=os.environ.get("PYTHONPATH"), environment=dict(os.environ))

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray_cluster, "_watch_raylet", lambda died: None)
    monkeypatch.setattr(ray_cluster, "_check_reachable", lambda address: None)
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", *ray_cluster.TOKENS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.syspath_prepend("/somewhere/else")
    return seen


@pytest.mark.parametrize("before", [None, "/from/the/user"])
def test_own_ray_inherits_the_path_and_joins_nothing(
    before: str | None, started: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if before:
        monkeypatch.setenv("PYTHONPATH", before)
    ray_cluster.connect({"num_cpus": 3}, print)
    assert started["address"] == "local"  # without it Ray joins whatever runs on this machine
    assert started["num_cpus"] == 3
    assert "runtime_env" not in started
    folders = started["path"].split(os.pathsep)
    assert folders[0] == "/somewhere/else"
    assert (before in folders) == (before is not None)
    assert os.environ.get("PYTHONPATH") == before


def test_a_cluster_is_told_the_path(
    started: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "elsewhere:6379")
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    ray_cluster.connect({}, print)
    assert started["address"] == "elsewhere:6379"
    told = started["runtime_env"]["env_vars"]
    assert told["TF_USE_LEGACY_KERAS"] == "1"
    assert told["PYTHONPATH"].split(os.pathsep)[0] == "/somewhere/else"


def test_a_cluster_has_its_own_resources(started: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="init_args has num_cpus"):
        ray_cluster.connect({"num_cpus": 1, "address": "elsewhere:6379"}, print)
    assert not started


def test_a_cluster_that_does_not_answer_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(RunError, match=f"cannot join the Ray cluster at {address}"):
        ray_cluster.connect({"address": address}, print)


def test_a_temporary_folder_too_long_for_sockets_is_refused_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray itself refuses it, before it starts anything."""
    folder = tmp_path / ("t" * 120)
    folder.mkdir()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for variable in ("TMPDIR", "RAY_TMPDIR"):
        monkeypatch.setenv(variable, str(folder))
        with pytest.raises(ConfigurationError, match=rf"^{variable} .*--backend serial"):
            ray_cluster.connect({}, print)
    with pytest.raises(ConfigurationError, match=r"^_temp_dir .*--backend serial"):
        ray_cluster.connect({"_temp_dir": str(folder)}, print)


@pytest.mark.parametrize("address", ["", "elsewhere:6379"])
@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({}, "token"),
        ({"RAY_AUTH_TOKEN": "users"}, "token"),
        ({"RAY_AUTH_TOKEN_PATH": "/users/token"}, "token"),
        ({"RAY_AUTH_MODE": "token"}, "token"),
        ({"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "users"}, "disabled"),
    ],
)
def test_token(
    given: dict[str, str],
    mode: str,
    address: str,
    started: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Ray of one's own has a new one unless the user gives one; a cluster has the user's."""
    monkeypatch.setenv("RAY_ADDRESS", address)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    tokens = []
    for _ in range(2):
        ray_cluster.connect({}, print)
        found = {k: v for k, v in started["environment"].items() if k.startswith("RAY_AUTH_")}
        tokens.append(found.pop("RAY_AUTH_TOKEN", None) if not given else None)
        own = not address and not given
        assert found == ({**given, "RAY_AUTH_MODE": mode} if given or own else {})
    assert all(tokens) == (len(set(tokens)) == 2) == own
    # What else this process starts need not know it.
    assert {k: v for k, v in os.environ.items() if k.startswith("RAY_AUTH_")} == given


@pytest.mark.slow
def test_keras_3_is_not_imported() -> None:
    """It would be imported in every actor, takes long, and nothing uses it."""
    environment = {k: v for k, v in os.environ.items() if k != "TF_USE_LEGACY_KERAS"}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS],
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
