"""Guard of a client's work: what its node refuses, errors that reach the server, and a deadline."""

from __future__ import annotations

import os
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path

from flwr.app import Context, Error, Message

from bfl.configuration import Configuration
from bfl.engine.flower import CLIENT_RAISED
from bfl.engine.resources import in_ray_actor, in_simulation
from bfl.errors import BflError, ConfigurationError, LostStateError, public
from bfl.federation.wire import RUN_CANNOT_GO_ON, TrainTask
from clients.node import Node


def refuse(task: TrainTask, node: Node, configuration: Configuration) -> None:
    """Refuse what this node does not do, whatever the server says.

    Raises:
        ConfigurationError: The task is another client's, or one of a hostile client, or the update
            would go another way than the node allows.
    """
    # Behind the last client comes the virtual one that pre-trains.
    if task.partition_id not in (node.partition_id, node.num_partitions):
        refusal = ConfigurationError(
            f"this node plays partition {node.partition_id} and is asked for partition "
            f"{task.partition_id}; has its configuration been changed during the run?"
        )
        raise public(refusal)
    if node.exchange and configuration.exchange.name != node.exchange:
        refusal = ConfigurationError(
            f"the run's exchange is '{configuration.exchange.name}', and this node's configuration "
            f"has exchange='{node.exchange}': it sends its updates in no other way"
        )
        raise public(refusal)
    # What an attack makes of an update is sent without noise.
    hostile = node.allows_attack and not node.private
    if configuration.attacks(task.partition_id) and not hostile:
        refusal = ConfigurationError(
            f"attack is '{configuration.attack.name}' for partition {task.partition_id}, and this "
            "node does not play hostile clients: only simulated nodes do, and SuperNodes whose "
            "node configuration has allow-attack=true and not private=true"
        )
        raise public(refusal)
    if node.private and not any(part.draws for part in configuration.outgoing):
        refusal = ConfigurationError(
            f"outgoing is '{configuration.words['outgoing']}' and this node has private=true in "
            'its configuration: it sends nothing without noise of its own; allowed: "clip+noise" '
            'with noise-at="clients"'
        )
        raise public(refusal)


Work = Callable[[Message, Context], Message]

_APP = Path(__file__).resolve().parent.parent
_INSTALLED = tuple(Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib"))
_SHARED = {_APP / "bfl": _APP, _APP / "clients": _APP, **{path: path for path in _INSTALLED}}
"""Folders with code that everybody has, and what their files are named relative to."""

TIMED_OUT = 75
"""Exit status of an actor that took too long."""


def reports_errors(work: Work) -> Work:
    """Return a client's work such that what it raises is sent to the server.

    Flower's engines send the message of an exception and drop its traceback. A simulated client
    sends both. A real one sends where it happened and what kind it was; what the error says may
    hold its data, paths or settings, and stays in its own log, but for messages that are public.
    """

    @wraps(work)
    def guarded(message: Message, context: Context) -> Message:
        code = CLIENT_RAISED
        simulated = in_simulation(context.node_config)
        try:
            return work(message, context)
        except Exception as error:
            # Others may be luckier, and the result would not say so.
            code = RUN_CANNOT_GO_ON if isinstance(error, LostStateError) else code
            reason = reason_for_server(error, simulated)
            if not simulated:
                traceback.print_exception(error)
        return Message(Error(code=code, reason=reason), reply_to=message)

    return guarded


def reason_for_server(error: Exception, simulated: bool) -> str:
    """Return what the server is sent of an exception.

    Args:
        error: The exception.
        simulated: Whether the client is a simulated one, which has no secrets from the server.
    """
    if not isinstance(error, BflError):
        return "".join(traceback.format_exception(error)) if simulated else without_messages(error)
    if not simulated and not error.public:
        return without_messages(error)
    # Meant for people: its message says all.
    return str(error) if isinstance(error, LostStateError) else f"{type(error).__name__}: {error}"


def without_messages(error: BaseException) -> str:
    """Return the traceback of an exception, with those that led to it, but not what they say.

    Nor where on this machine the code lies.
    """
    lines = []
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        lines += [_place(frame) for frame in traceback.extract_tb(error.__traceback__)]
        lines.append(f"{type(error).__qualname__} (its message is in the client's own log)\n")
        before = error.__cause__ or error.__context__
        if before is None:
            break
        lines.append("after\n")
        error = before
    return "".join(lines)


def _place(frame: traceback.FrameSummary) -> str:
    """Return a line of code that everybody has; of the node's own files, the name alone."""
    path = Path(frame.filename)
    for folder, root in _SHARED.items():
        if path.is_relative_to(folder):
            shown = path.relative_to(root).as_posix()
            return f"  {shown}, line {frame.lineno}, in {frame.name}: {frame.line}\n"
    return f"  {path.name}, line {frame.lineno}, in {frame.name}\n"


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """End this process if the work inside takes longer, where the engine starts another one.

    A TensorFlow graph that runs cannot be interrupted. In a Ray actor the process ends, which Ray
    replaces and the server hears of at once. Elsewhere nothing is done: a SuperNode's process is
    Flower's to end, and the serial engine's is everybody's.
    """
    if not in_ray_actor():
        yield
        return
    timer = threading.Timer(seconds, os._exit, [TIMED_OUT])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
