"""What the tests of deployments share: Flower's processes, and the result to compare with."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from federation_folders import HOSTS, NOW
from flower_processes import Flower

from bfl.deployment import setup
from bfl.deployment.private_files import FederationFolder
from bfl.deployment.settings import ServerSettings


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flower]:
    """Return what starts Flower's processes; they are all ended after the module."""
    flower = Flower(tmp_path_factory.mktemp("flower"))
    try:
        yield flower
    finally:
        flower.end()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a federation of three clients, which no test changes."""
    path = tmp_path_factory.mktemp("made") / "federation"
    setup.init(path, ServerSettings(hosts=HOSTS), "3", NOW)
    return path


@pytest.fixture
def federation(made: Path, tmp_path: Path) -> FederationFolder:
    """Return a copy of it."""
    shutil.copytree(made, tmp_path / "federation")
    return FederationFolder(tmp_path / "federation")
