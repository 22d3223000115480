"""For all tests: few threads, nothing sent anywhere, and TensorFlow only for those that ask."""

from __future__ import annotations

import os
from typing import Any

import pytest

os.environ["BFL_CPUS"] = "1"
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the slow tests, so that no process waits at the end for another's last file."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def tensorflow() -> Any:
    """Return TensorFlow, configured; a test that uses it imports what needs it in its body."""
    from bfl.keras import configure, tf

    configure(1)
    return tf
