"""The benchmarks can be started: what they import is there."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


def test_every_benchmark_can_be_imported() -> None:
    """In one process of its own, as they import each other by their bare names."""
    names = sorted(path.stem for path in FOLDER.glob("*.py"))
    done = subprocess.run(
        [sys.executable, "-c", f"import {', '.join(names)}"],
        cwd=FOLDER,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.long
def test_the_gpu_check_can_be_tried_without_a_gpu(tmp_path: Path) -> None:
    output = tmp_path / "gpu.json"
    command = [sys.executable, "gpu_check.py", "--dry-run", "--output", str(output)]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    report = json.loads(output.read_text())
    assert report["same-bits"] is True
    assert report["flipout-over-fedavg"] > 0
    assert report["checks"]["table2-cell"]["images-per-second"] > 0


def test_a_command_of_the_gpu_check_is_interrupted_in_time() -> None:
    run = "g._run(['sleep', '60'], g.STOPPING + 1, interrupt=True)"
    call = f"import gpu_check as g; print(repr({run}))"
    done = subprocess.run(
        [sys.executable, "-c", call], cwd=FOLDER, capture_output=True, text=True, timeout=300
    )
    assert done.stdout == "''\n", done.stderr
