"""Hundreds of rounds, undisturbed and disturbed: the scripts that a person runs, made smaller."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parent.parent.parent / "scripts"

pytestmark = pytest.mark.long


def script(name: str, *arguments: str) -> str:
    """Run a script to its end and return what it has printed."""
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / name), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def test_commands_and_ray_actors_killed_at_random_change_nothing() -> None:
    printed = script("soak.py", "2", "ray", "10")
    assert printed.rstrip().endswith("the same")
    for victim in ("command", "actor"):
        assert f": {victim} from round " in printed


@pytest.mark.alone
def test_later_rounds_need_no_more_memory_and_are_no_slower() -> None:
    """Twice as slow: neighbours on the machine alone do that to some rounds, not to most."""
    assert script("flatness.py", "60", "2.0").rstrip().endswith("flat")
