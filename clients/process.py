"""State of a client process between tasks, and the guard of its work.

Configuration and data are loaded once; the guard refuses what the node refuses, lets errors reach
the server, and keeps a deadline.
"""

from __future__ import annotations

import os
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Context, Error, Message

from bfl.configuration import Configuration, resolve
from bfl.data.datasets import Dataset, cached_dataset
from bfl.data.datasets.reading import AS_STORED, SUMMED, Reading
from bfl.data.images import Images
from bfl.engine.flower import CLIENT_RAISED
from bfl.engine.resources import cpus_of_this_process, in_ray_actor, in_simulation
from bfl.errors import BflError, ConfigurationError, DataError, LostStateError, public
from bfl.federation.wire import RUN_CANNOT_GO_ON, TrainTask
from bfl.plugins import Plugin, load_plugins, named_plugins
from bfl.texts import from_json
from clients.node import Node


@dataclass(frozen=True)
class TrainingData:
    """Training images (N, H, W, C), labels (N,), and the answers of other tasks in their place.

    What is to be said of how they were read is for the node's own log.
    """

    images: Images
    labels: npt.NDArray[np.integer[Any]]
    targets: npt.NDArray[np.floating[Any]] | None = None
    said: tuple[str, ...] = ()

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the images."""
        height, width, channels = self.images.shape[1:]
        return height, width, channels

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(self.labels)


@lru_cache(maxsize=16)
def _resolved(text: str, folder: str | None, plugins: tuple[Plugin, ...]) -> Configuration:
    return resolve(from_json(text), check_data=False, on_client=True, plugins_of_node=folder)


def cached_configuration(text: str, plugins_folder: str | None = None) -> Configuration:
    """Return the configuration that a JSON object of flat keys describes.

    The server has checked that its data are there; this machine may keep them elsewhere. What the
    server alone reads is not sent, and has its default here.

    Args:
        text: The JSON object.
        plugins_folder: Where plugins are on this node, see ``load_plugins``.

    Raises:
        ConfigurationError: A plugin is missing here, or is not taken.
    """
    # A file that was changed since is another plugin.
    plugins = load_plugins(named_plugins(from_json(text)), plugins_folder)
    return _resolved(text, plugins_folder, plugins)


def shared_data(dataset: str, data_dir: str, reading: Reading = AS_STORED) -> TrainingData:
    """Return the run's training data, of which each client has its part."""
    return _training_data(cached_dataset(dataset, data_dir, reading))


def own_data(location: str, reading: Reading = AS_STORED) -> TrainingData:
    """Return the training data that a node holds by itself: all of them are its own.

    Raises:
        DataError: Which class is which is said by these data alone, and not as the run says it.
    """
    dataset = cached_dataset(location, "", reading)
    sums_follow = dataset.encoding and reading.columns == SUMMED
    if dataset.numbered_here and not sums_follow:
        raise DataError(
            f"{dataset.name}: {dataset.numbered_here}; with data of your own, labels have to be "
            "integers that count from 0 as the run's do, or texts besides an array class_names; a "
            "folder of images has a classes.txt, and a table FILE.csv a FILE.columns.json"
        )
    return _training_data(dataset)


def _training_data(dataset: Dataset) -> TrainingData:
    targets = (
        np.asarray(dataset.trained_on, np.float32) if dataset.train_targets is not None else None
    )
    return TrainingData(dataset.train_images, dataset.train_labels, targets, dataset.said)


def start_tensorflow() -> None:
    """Size TensorFlow's threads to this process's share of the CPUs, before its first use."""
    from bfl.keras import configure

    configure(cpus_of_this_process())


def refuse(task: TrainTask, node: Node, configuration: Configuration) -> None:
    """Refuse what this node does not do, whatever the server says.

    Raises:
        ConfigurationError: The task is another client's, or one of a hostile client, or the update
            would go another way than the node allows.
    """
    problem = ""
    # What an attack makes of an update is sent without noise.
    hostile = node.allows_attack and not node.private
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
    elif configuration.attacks(task.partition_id) and not hostile:
        problem = (
            f"attack is '{configuration.attack.name}' for partition {task.partition_id}, and this "
            "node does not play hostile clients: only simulated nodes do, and SuperNodes whose "
            "node configuration has allow-attack=true and not private=true"
        )
    elif node.private and not any(part.draws for part in configuration.outgoing):
        problem = (
            f"outgoing is '{configuration.words['outgoing']}' and this node has private=true in "
            'its configuration: it sends nothing without noise of its own; allowed: "clip+noise" '
            'with noise-at="clients"'
        )
    if problem:
        raise public(ConfigurationError(problem))


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
