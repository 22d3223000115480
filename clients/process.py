"""Guard of a client's work: errors reach the server, a deadline is kept, and nodes may refuse.

Besides, what a process loads once for all tasks: the run's configuration, and TensorFlow.
"""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps

from flwr.app import Context, Error, Message

from bfl.configuration import Configuration, resolve
from bfl.engine.flower import CLIENT_RAISED
from bfl.engine.processes import cpus_of_this_process, in_ray_actor, in_simulation
from bfl.errors import BflError, ConfigurationError, LostStateError, public
from bfl.federation.wire import RUN_CANNOT_GO_ON, TrainTask
from bfl.plugins import Plugin, load_plugins, named_plugins
from bfl.texts import from_json
from clients.node import Node

Work = Callable[[Message, Context], Message]


def reports_errors(work: Work) -> Work:
    """Return a client's work such that what it raises is sent to the server.

    Flower's engines send the message of an exception and drop its traceback. A simulated client
    sends both. A real one sends what kind it was; what the error says may hold its data, paths or
    settings, and stays in its own log, but for messages that are public.
    """

    @wraps(work)
    def guarded(message: Message, context: Context) -> Message:
        simulated = in_simulation(context.node_config)
        try:
            return work(message, context)
        except Exception as error:
            # Others may be luckier, and the result would not say so.
            code = RUN_CANNOT_GO_ON if isinstance(error, LostStateError) else CLIENT_RAISED
            reason = reason_for_server(error, simulated)
            if not simulated:
                traceback.print_exception(error)
        return Message(Error(code=code, reason=reason), reply_to=message)

    return guarded


def reason_for_server(error: Exception, simulated: bool) -> str:
    """Return what the server is sent of an exception; a simulated client has no secrets from it."""
    if not isinstance(error, BflError) and simulated:
        return "".join(traceback.format_exception(error))
    if not isinstance(error, BflError) or not (simulated or error.public):
        return f"{type(error).__qualname__} (its message is in the client's own log)"
    # Meant for people: its message says all.
    return str(error) if isinstance(error, LostStateError) else f"{type(error).__name__}: {error}"


TIMED_OUT = 75  # exit status of an actor that took too long


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


def refuse_task(task: TrainTask, node: Node, configuration: Configuration) -> None:
    """Refuse what this node does not do, whatever the server says."""
    problem = ""
    # Behind the last client comes the virtual one that pre-trains.
    if task.partition_id not in (node.partition_id, node.num_partitions):
        problem = (
            f"this node has partition {node.partition_id} and is asked for partition "
            f"{task.partition_id}; has its configuration been changed during the run?"
        )
    elif node.exchange and configuration.exchange.name != node.exchange:
        problem = (
            f"the run's exchange is '{configuration.exchange.name}', and this node's configuration "
            f"has exchange='{node.exchange}': it sends its updates in no other way"
        )
    elif configuration.attacks(task.partition_id) and not node.simulated:
        problem = (
            f"attack is '{configuration.attack.name}' for partition {task.partition_id}, and only "
            "simulated nodes play hostile clients"
        )
    elif node.private and not any(part.draws for part in configuration.outgoing):
        problem = (
            f"outgoing is '{configuration.words['outgoing']}' and this node has private=true in "
            'its configuration: it sends nothing without noise of its own; allowed: "clip+noise" '
            'with noise-at="clients"'
        )
    if problem:
        raise public(ConfigurationError(problem))


def cached_configuration(text: str, plugins_folder: str | None = None) -> Configuration:
    """Return the configuration that a JSON object of flat keys describes.

    The server has checked that its data are there; this machine may keep them elsewhere. What the
    server alone reads is not sent, and has its default here. ``load_plugins`` has what
    ``plugins_folder`` means.
    """
    # A file that was changed since is another plugin.
    plugins = load_plugins(named_plugins(from_json(text)), plugins_folder)
    return _resolved(text, plugins_folder, plugins)


@lru_cache(maxsize=16)
def _resolved(text: str, folder: str | None, plugins: tuple[Plugin, ...]) -> Configuration:
    return resolve(from_json(text), check_data=False, on_client=True, plugins_of_node=folder)


def start_tensorflow() -> None:
    """Size TensorFlow's threads to this process's share of the CPUs, before its first use."""
    from bfl.keras import configure

    configure(cpus_of_this_process())
