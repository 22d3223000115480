"""Flower's SuperLink and SuperNode with other pauses, and the process that plays a node's tasks.

It is started as a file of its own, ``python -P flower_process.py ROLE ARGUMENT...``. Nodes and
workers import nothing of bfl, which a task's bundle brings. ``superlink`` and ``node`` take the
arguments of Flower's commands. A ``worker`` plays task after task, with all that it has imported
and traced: each line of its standard input is the one-time token of a task; for each it prints a
line when it is over. It opens no port, and ends when its input does.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Collection
from contextlib import redirect_stdout
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import httpx
from flwr.app import Error
from flwr.common.constant import APP_DIR
from flwr.supercore.exit.exit_handler import trigger_exit_handlers
from flwr.supercore.utils import get_flwr_home

BUSY_TIMEOUT = 120
"""Seconds that a call waits while another one writes to the SuperLink's database; Flower: 5, which
writing a posterior of hundreds of megabytes takes."""

PULL_BACKOFF = 0.1
"""Seconds until an object that is still on its way is asked for again; Flower: 1."""

LEAST, SHARE, REPLY_LOOK = 0.25, 0.1, 0.05
"""A SuperNode's pause between looks for a message is a tenth of the time since the last one, in
seconds from 0.25 to Flower's 3; that for the reply of its own process 0.05, Flower's 0.5."""


def quick_pulls() -> None:
    """Have Flower's functions of this process ask sooner for objects that are on their way."""
    transfers = importlib.import_module("flwr.supercore.inflatable.inflatable_utils")
    for name in ("pull_objects", "pull_and_inflate_object_from_tree"):
        getattr(transfers, name).__kwdefaults__["initial_backoff"] = PULL_BACKOFF


class Pauses:
    """In the place of the module ``time`` in the loop of a SuperNode."""

    def __init__(self) -> None:
        self._worked = time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait shorter than Flower, which waits 0.5 s at most for a reply, more for a message."""
        if seconds <= 0.5:
            time.sleep(min(seconds, REPLY_LOOK))
            self._worked = time.monotonic()
            return
        time.sleep(min(seconds, max(LEAST, SHARE * (time.monotonic() - self._worked))))

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


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


def run_superlink() -> None:
    """Run the SuperLink."""
    connections: Any = importlib.import_module("flwr.supercore.sql_mixin")
    pragmas = {**dict(connections.SQLITE_PRAGMAS), "busy_timeout": str(BUSY_TIMEOUT * 1000)}
    connections.SQLITE_PRAGMAS = tuple(pragmas.items())
    factory: Any = importlib.import_module("flwr.supercore.object_store.object_store_factory")
    factory.SqlObjectStore = importlib.import_module("bfl.engine.flower.object_store").ObjectStore
    command: Any = importlib.import_module("flwr.superlink.cli")
    command.flower_superlink()


ACTIVATION_PATIENCE, ACTIVATION_INTERVAL = 90.0, 5.0
"""Seconds for which a refused node asks again to be let in, and between two calls.

Flower takes a node that was killed for connected until a minute after its last sign of life.
"""


LET_IN = "the server has let it in"
"""A node says this, behind its name, as soon as it is connected."""


def wait_to_be_let_in(activate: Callable[..., Any]) -> Callable[..., Any]:
    """Return Flower's call by which a node begins, made again while the SuperLink refuses it."""

    def call(*arguments: Any) -> Any:
        deadline, printed = time.monotonic() + ACTIVATION_PATIENCE, False
        while True:
            try:
                answer = activate(*arguments)
                say(LET_IN)
                return answer
            except httpx.HTTPStatusError as error:
                refused = error.response.status_code == 412
                listed = "list of clients" not in error.response.text
                if not (refused and listed and time.monotonic() < deadline):
                    raise
            if not printed:
                say(
                    "the server does not let it in yet, as after a start less than a minute after "
                    f"its last end; it asks again for {ACTIVATION_PATIENCE:g} s"
                )
            printed = True
            time.sleep(ACTIVATION_INTERVAL)

    return call


def tell_refusal(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return one of a node's calls, which says why the node is put out before it ends."""

    def call_and_tell(*arguments: Any) -> Any:
        try:
            return call(*arguments)
        except httpx.HTTPStatusError as error:
            status, text = error.response.status_code, error.response.text
            if status == 401 or "list of clients" in text:
                say("the server does not let it in: client.key is not in the list of clients")
            elif status not in (403, 502, 503, 504):  # a run is over, or the server will be back
                say(f"the server does not let it in: status {status}, {text[:300]!a}")
            raise

    return call_and_tell


def say(text: str) -> None:
    """Print a line that the client shows, behind its name."""
    print(f"{os.environ.get('BFL_CLIENT', 'this node')}: {text}", file=sys.stderr, flush=True)


def run_node() -> None:
    """Run the SuperNode."""
    quick_pulls()
    fleet: Any = importlib.import_module("flwr.supernode.fleet_http_client").FleetHttpClient
    fleet.ActivateNode = tell_refusal(wait_to_be_let_in(fleet.ActivateNode))
    for name in ("PullMessages", "SendNodeHeartbeat"):
        setattr(fleet, name, tell_refusal(getattr(fleet, name)))
    loop: Any = importlib.import_module("flwr.supernode.start_client_internal")
    loop.time = Pauses()
    command: Any = importlib.import_module("flwr.supernode.cli.flower_supernode")
    command.flower_supernode()


def play_tasks(address: str, authority: str, *approved: str) -> None:
    """Play the tasks of the SuperNode at a port, known by a certificate's file."""
    # What the app prints goes to the log; the lines that say that a task is over to the parent.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    runtime: Any = importlib.import_module("flwr.supernode.runtime.run_clientapp")
    runtime.flwr_exit = end_task
    logging.getLogger("flwr").setLevel(logging.WARNING)  # its lines have colours, also in a file
    runtime.Error = without_message
    quick_pulls()
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
    role = sys.argv.pop(1)
    if role == "worker":
        play_tasks(*sys.argv[1:])
    else:
        {"superlink": run_superlink, "node": run_node}[role]()
