"""A process that plays a node's client task after task, with all that it has imported and traced.

It is started as a file of its own and imports nothing of bfl: a task's bundle brings the code, and
what is imported here first would be played in its place. Tasks come as lines on its standard input,
each the one-time token of a task; for each it prints a line when it is over. It opens no port, and
ends when its input does, that is, with whoever has started it.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from flwr.app import Error
from flwr.supercore.exit.exit_handler import trigger_exit_handlers

PAUSES = Path(__file__).with_name("pauses.py")


class TaskIsOverError(Exception):
    """A task is over, where Flower would end the process."""


def end_task(code: int, *_: object, **__: object) -> NoReturn:
    """Hand in a task's end as Flower does, and go on."""
    trigger_exit_handlers(run_before_force_exit=True)
    trigger_exit_handlers(run_before_force_exit=False)
    raise TaskIsOverError(code)


def without_message(code: int, reason: str | None = None) -> Error:
    """Return what is sent of an exception that the app has not caught: its kind alone.

    Flower sends what it says as well, which may hold data or paths of this machine; that is in this
    process's log.
    """
    kind = (reason or "").partition(":<")[0]
    return Error(code, f"{kind} (its message is in the client's own log)")


def main(address: str, authority: str) -> None:
    """Play the tasks of a SuperNode.

    Args:
        address: The port for its processes, on this machine.
        authority: The file with the certificate by which it is known.
    """
    # What the app prints goes to the log; the lines that say that a task is over to the parent.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    runtime: Any = importlib.import_module("flwr.supernode.runtime.run_clientapp")
    runtime.flwr_exit = end_task
    runtime.Error = without_message
    runpy.run_path(str(PAUSES))["quick_pulls"]()
    # The parent starts a new process for a new bundle.
    runtime.install_from_fab = lru_cache(maxsize=1)(runtime.install_from_fab)
    certificates = Path(authority).read_bytes()
    for line in sys.stdin:
        try:
            runtime.run_clientapp(address, line.strip(), insecure=False, certificates=certificates)
        except TaskIsOverError as over:
            answers.write(f"{over}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
