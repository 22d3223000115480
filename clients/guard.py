"""What stands around a client's work: its errors reach the server, and it cannot hang for ever."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps

from flwr.app import Context, Error, Message

from bfl.engine.flower import CLIENT_RAISED
from bfl.engine.resources import in_ray_actor, in_simulation
from bfl.errors import BflError, LostStateError
from bfl.federation.wire import RUN_CANNOT_GO_ON

Work = Callable[[Message, Context], Message]

TIMED_OUT = 75
"""Exit status of an actor that took too long."""


def reports_errors(work: Work) -> Work:
    """Return a client's work such that what it raises is sent to the server, traceback and all.

    Flower's engines send the message of an exception and drop its traceback. A real client sends
    where it happened and what kind it was; the message of an exception that is not ours may hold
    its data, and stays in its own log.
    """

    @wraps(work)
    def guarded(message: Message, context: Context) -> Message:
        code = CLIENT_RAISED
        try:
            return work(message, context)
        except LostStateError as error:  # others may be luckier, and the result would not say so
            code, reason = RUN_CANNOT_GO_ON, str(error)
        except BflError as error:  # meant for people: its message says all
            reason = f"{type(error).__name__}: {error}"
        except Exception as error:
            reason = traceback.format_exc()
            if not in_simulation(context.node_config):
                print(reason, file=sys.stderr)
                reason = without_messages(error)
        return Message(Error(code=code, reason=reason), reply_to=message)

    return guarded


def without_messages(error: BaseException) -> str:
    """Return the traceback of an exception, with those that led to it, but not what they say."""
    lines = []
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        lines += traceback.format_tb(error.__traceback__)
        lines.append(f"{type(error).__qualname__} (its message is in the client's own log)\n")
        before = error.__cause__ or error.__context__
        if before is None:
            break
        lines.append("after\n")
        error = before
    return "".join(lines)


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
