"""What the tests of deployments share: Flower's processes, and the result to compare with."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from federation_folders import HOSTS, NOW
from flower_processes import ROOT, Flower, final_digest, run_config

from bfl.configuration.pairs import parse_pairs
from bfl.deployment import setup
from bfl.deployment.private_files import FederationFolder
from bfl.deployment.settings import ServerSettings
from bfl.engine.flower import FlowerApp, run_serially


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
    run_serially(FlowerApp.read(ROOT), parse_pairs(run_config(folder, "run")), 2, {})
    return final_digest(folder / "run")


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a federation of three clients, which no test changes."""
    path = tmp_path_factory.mktemp("made") / "federation"
    setup.init(path, ServerSettings(hosts=HOSTS), 3, NOW)
    return path


@pytest.fixture
def federation(made: Path, tmp_path: Path) -> FederationFolder:
    """Return a copy of it."""
    shutil.copytree(made, tmp_path / "federation")
    return FederationFolder(tmp_path / "federation")
