"""What the tests of deployments share: Flower's processes, and the result to compare with."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from flower_processes import ROOT, Flower, executable, final_digest, run_config


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flower]:
    """Return what starts Flower's processes; they are all ended after the module."""
    flower = Flower(tmp_path_factory.mktemp("flower"))
    try:
        yield flower
    finally:
        flower.end()


@pytest.fixture(scope="session")
def serial_digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the posterior's SHA-256 of the same run in one process."""
    folder = tmp_path_factory.mktemp("serial")
    command = [executable("flower-simulation"), "--app", str(ROOT), "--backend", "serial"]
    command += ["--num-supernodes", "2", "--run-config", run_config(folder, "run")]
    subprocess.run(command, cwd=folder, check=True, timeout=120, capture_output=True)
    return final_digest(folder / "run")
