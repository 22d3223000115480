"""The benchmarks can be started: what they import is there."""

import subprocess
import sys
from pathlib import Path

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
