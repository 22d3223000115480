"""Commands of the environment that runs the tests."""

import sys
import sysconfig
from pathlib import Path

import pytest


def executable(name: str) -> str:
    """Return the path of a command of the environment that runs the tests."""
    for folder in (Path(sysconfig.get_path("scripts")), Path(sys.executable).parent):
        if (folder / name).is_file():
            return str(folder / name)
    pytest.fail(f"{name} is not installed beside {sys.executable}")
