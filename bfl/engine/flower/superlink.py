"""Flower's SuperLink with a patient database, a store that is not lied to, and a Ray of its user's.

It takes the same arguments.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from bfl.engine.ray_cluster import own_environment

BUSY_TIMEOUT = 120
"""Seconds that a call waits while others write to the database; Flower: 5.

One call at a time writes. Those that write or take away a posterior of hundreds of megabytes have
the database for longer than 5 s, and the calls of other clients were refused.
"""


def superlink_command() -> list[str]:
    """Return the command of a SuperLink that waits for its database; flower-superlink's options."""
    return [sys.executable, "-P", __file__]


def waits_longer() -> None:
    """Have the connections to the database that this process makes wait for ``BUSY_TIMEOUT``."""
    connections: Any = importlib.import_module("flwr.supercore.sql_mixin")
    pragmas = {**dict(connections.SQLITE_PRAGMAS), "busy_timeout": str(BUSY_TIMEOUT * 1000)}
    connections.SQLITE_PRAGMAS = tuple(pragmas.items())


def believes_contents() -> None:
    """Have this process keep objects in a store of ours."""
    from bfl.engine.flower.object_store import ObjectStore

    factory: Any = importlib.import_module("flwr.supercore.object_store.object_store_factory")
    factory.SqlObjectStore = ObjectStore


def main() -> None:
    """Run the SuperLink."""
    waits_longer()
    believes_contents()
    if "--simulation" in sys.argv and not os.environ.get("RAY_ADDRESS"):
        os.environ.update(own_environment())
    command: Any = importlib.import_module("flwr.superlink.cli")
    command.flower_superlink()


if __name__ == "__main__":
    main()
