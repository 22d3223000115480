"""A process that plays a node's client task after task, with all that it has imported and traced.

It is started as a file of its own and imports nothing of bfl, which a task's bundle brings. Each
line of its standard input is the one-time token of a task; for each it prints a line when it is
over. It opens no port, and ends when its input does.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import os
import runpy
import shutil
import sys
from collections.abc import Callable, Collection
from contextlib import redirect_stdout
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from flwr.app import Error
from flwr.common.constant import APP_DIR
from flwr.supercore.exit.exit_handler import trigger_exit_handlers
from flwr.supercore.utils import get_flwr_home

PAUSES = Path(__file__).with_name("warm_node.py")


class TaskIsOverError(Exception):
    """A task is over, where Flower would end the process."""


class BundleNotApprovedError(Exception):
    """A bundle that the node's operator has not approved; its message is for the server too."""


def end_task(code: int, *_: object, **__: object) -> NoReturn:
    """Hand in a task's end as Flower does, and go on."""
    trigger_exit_handlers(run_before_force_exit=True)
    trigger_exit_handlers(run_before_force_exit=False)
    raise TaskIsOverError(code)


def without_message(code: int, reason: str | None = None) -> Error:
    """Return what is sent of an exception that the app has not caught: its kind alone.

    Its message may hold data or paths of this machine, and is in this process's log; that of a
    bundle that is not approved holds nothing that the server does not know.
    """
    kind, _, message = (reason or "").partition(":<")
    if kind == str(BundleNotApprovedError):
        return Error(code, message.strip("'>"))
    return Error(code, f"{kind} (its message is in the client's own log)")


def hash_bundles(pull: Callable[..., Any]) -> Callable[..., Any]:
    """Return what pulls a task, such that its bundle has the hash of its bytes.

    Flower takes the server's word for it, and loads the app of that hash: also one that is
    installed here already, and another than the bundle.
    """

    def pull_and_hash(*words: Any) -> tuple[Any, Any, Any, Any]:
        message, context, run, bundle = pull(*words)
        digest = hashlib.sha256(bundle.content).hexdigest()
        return message, context, run, replace(bundle, hash_str=digest)

    return pull_and_hash


def only_approved(approved: Collection[str], install: Callable[..., Any]) -> Callable[..., Any]:
    """Return what installs a bundle whose SHA-256 is approved; nothing approved: any bundle."""

    def install_approved(content: bytes, **options: Any) -> Any:
        digest = hashlib.sha256(content).hexdigest()
        if approved and digest not in approved:
            raise BundleNotApprovedError(
                f"this node runs no bundle that its operator has not approved, and the run has "
                f"{digest}; if its code has been looked at, add that to bundles in node.toml and "
                "start the client anew"
            )
        with redirect_stdout(io.StringIO()):  # Flower's line that it is installed
            return install(content, **options)

    return install_approved


def main(address: str, authority: str, *approved: str) -> None:
    """Play the tasks of the SuperNode at a port, known by a certificate's file."""
    # What the app prints goes to the log; the lines that say that a task is over to the parent.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    runtime: Any = importlib.import_module("flwr.supernode.runtime.run_clientapp")
    runtime.flwr_exit = end_task
    runtime.Error = without_message
    runpy.run_path(str(PAUSES))["quick_pulls"]()
    installed = get_flwr_home() / APP_DIR
    if approved and installed.exists():
        # Flower finds what is installed by 8 digits of its hash, which others can be made to have.
        shutil.rmtree(installed)
    runtime.pull_task_input = hash_bundles(runtime.pull_task_input)
    # The parent starts a new process for a new bundle.
    install = only_approved(approved, runtime.install_from_fab)
    runtime.install_from_fab = lru_cache(maxsize=1)(install)
    certificates = Path(authority).read_bytes()
    for line in sys.stdin:
        try:
            runtime.run_clientapp(address, line.strip(), insecure=False, certificates=certificates)
        except TaskIsOverError as over:
            answers.write(f"{over}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
