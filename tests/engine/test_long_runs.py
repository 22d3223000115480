"""Many rounds in one simulation: the script that a person runs, made smaller."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent.parent / "scripts" / "flatness.py"


@pytest.mark.long
@pytest.mark.alone
def test_later_rounds_need_no_more_memory_and_are_no_slower() -> None:
    """Twice as slow: neighbours on the machine alone do that to some rounds, not to most."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "60", "2.0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert done.stdout.rstrip().endswith("flat")
