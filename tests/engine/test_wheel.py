"""The wheel, installed where there is no checkout: all commands work in any folder."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from bfl.experiments.results.run_folder import RunFolder

pytestmark = [pytest.mark.slow, pytest.mark.long]

ROOT = Path(__file__).resolve().parent.parent.parent
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

STUDY = """
title = "Small"
[base]
dataset = "digits"
model = "mlp"
inference = "deterministic"
strategy = "nwa"
train-examples = 300
test-examples = 100
rounds = 1
local-epochs = 1
clients = 2
figures = "none"
closing = "none"
[axes]
seed = [0, 1]
[[rows]]
label = { rule = "NWA" }
[[columns]]
metric = "accuracy"
title = "accuracy"
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel, built from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def scripts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the commands of an environment with the wheel and this one's other packages.

    A path file that names a folder does not have the path files in that folder read, so a checkout
    that is installed here for development is not seen.
    """
    environment = tmp_path_factory.mktemp("environment")
    create = [sys.executable, "-m", "venv", "--without-pip", str(environment)]
    subprocess.run(create, check=True)
    python = environment / "bin" / "python"
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps"]
    done = subprocess.run(
        [*install, "--ignore-installed", str(wheel)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    where = subprocess.run(
        [str(python), "-c", "import bfl, strategies, clients; print(bfl.__file__)"],
        cwd=environment,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(where.stdout.strip()).is_relative_to(packages)
    return environment / "bin"


def run(scripts: Path, folder: Path, name: str, *arguments: str) -> str:
    """Run a command of the wheel in a folder and return what it prints; it has to succeed."""
    done = subprocess.run(
        [str(scripts / name), *arguments],
        cwd=folder,
        env={**ENVIRONMENT, "BFL_CPUS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_app_is_described_as_in_the_checkout(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packaged = archive.read("bfl/app/pyproject.toml").decode()
        names = {name for name in archive.namelist() if name.startswith("bfl/app/configs/")}
    assert packaged == (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    ours = {p.relative_to(ROOT).as_posix() for p in (ROOT / "configs").rglob("*") if p.is_file()}
    assert names == {f"bfl/app/{name}" for name in ours}


def test_the_commands_work_in_any_folder(scripts: Path, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(STUDY, encoding="utf-8")
    serial = ("study", "small.toml", "--backend", "serial")
    assert "2 of 2 runs are done" in run(scripts, tmp_path, "bfl", *serial)
    assert "| NWA |" in run(scripts, tmp_path, "bfl", "table", "small.toml")
    made = next(tmp_path.rglob("metrics.json")).parent
    assert "accuracy" in RunFolder(made).metrics()
    assert "accuracy" in run(scripts, tmp_path, "bfl", "show", str(made))
    assert "learning-curve.png" in run(scripts, tmp_path, "bfl", "plot", str(made))
    # A study of the project is found by its name.
    printed = run(scripts, tmp_path, "bfl", "study", "fischer2024/table2", "--dry-run")
    assert "all of them can be made" in printed
    assert "--backend" in run(scripts, tmp_path, "flower-simulation", "--help")
    assert "learning-rate" in run(scripts, tmp_path, "bfl", "keys")


def test_a_run_of_a_federation_ships_all_code(scripts: Path, tmp_path: Path) -> None:
    code = """
import io, zipfile
from flwr.cli.build import build_fab_from_disk
from bfl.engine.flower.app import FlowerApp
from bfl.engine.flower.app import bundled
with bundled(FlowerApp.own().folder) as folder:
    print(*zipfile.ZipFile(io.BytesIO(build_fab_from_disk(folder))).namelist(), sep="\\n")
"""
    shipped = set(run(scripts, tmp_path, "python", "-c", code).splitlines())
    packages = [ROOT / name for name in ("bfl", "strategies", "clients")]
    modules = {p.relative_to(ROOT).as_posix() for each in packages for p in each.rglob("*.py")}
    assert len(modules) > 200
    assert not modules - shipped
