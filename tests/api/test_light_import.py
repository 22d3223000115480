"""``import bfl`` and its verbs are there at once: TensorFlow and Flower come when used.

A configuration imports all parts, and so all numerics, which do without them.
"""

import subprocess
import sys

import pytest

HEAVY = ("tensorflow", "flwr", "ray", "matplotlib", "strategies", "clients")


def test_importing_and_resolving_is_light() -> None:
    code = (
        "import sys, bfl; bfl.run; bfl.load; bfl.study; bfl.Result;"
        "from bfl.configuration import resolve; resolve({});"
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_package_itself_loads_nothing_of_the_library() -> None:
    code = "import sys, bfl; print([m for m in sys.modules if m.startswith('bfl.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error() -> None:
    import bfl

    assert {"run", "load", "study", "Result", "Predictions"} <= set(dir(bfl))
    with pytest.raises(AttributeError, match="no attribute 'rnu'"):
        bfl.rnu  # noqa: B018
