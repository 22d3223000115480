"""What starts with Ray: a Ray of one's own or a cluster, and what its processes import."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray

from bfl.engine import ray_cluster
from bfl.errors import RunError

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
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
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
    ray_cluster.connect({"num_cpus": 3})
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
    ray_cluster.connect({})
    assert started["address"] == "elsewhere:6379"
    told = started["runtime_env"]["env_vars"]
    assert told["TF_USE_LEGACY_KERAS"] == "1"
    assert told["PYTHONPATH"].split(os.pathsep)[0] == "/somewhere/else"


def test_a_temporary_folder_too_long_for_sockets_is_refused_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray itself refuses it, before it starts anything."""
    folder = tmp_path / ("t" * 120)
    folder.mkdir()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(RunError, match=r"TMPDIR .*--backend serial"):
        ray_cluster.connect({"_temp_dir": str(folder)})


def test_a_ray_of_ones_own_has_a_new_token_and_a_cluster_that_of_the_user(
    started: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def tokens() -> dict[str, str]:
        ray_cluster.connect({})
        return {k: v for k, v in started["environment"].items() if k.startswith("RAY_AUTH_")}

    first, second = tokens(), tokens()
    assert first["RAY_AUTH_MODE"] == second["RAY_AUTH_MODE"] == "token"
    assert first["RAY_AUTH_TOKEN"] != second["RAY_AUTH_TOKEN"]
    # What else this process starts need not know it.
    assert not [name for name in os.environ if name.startswith("RAY_AUTH_")]
    monkeypatch.setenv("RAY_ADDRESS", "elsewhere:6379")
    assert tokens() == {}
    monkeypatch.setenv("RAY_ADDRESS", "")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert tokens() == {"RAY_AUTH_MODE": "disabled"}


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
