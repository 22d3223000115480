"""The ClientApp: trains, adds up for a closing, tests the final model, and describes its node."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from typing import Any

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp

from bfl.engine.flower import CLIENT_RAISED
from bfl.engine.processes import in_simulation
from bfl.errors import LostStateError
from bfl.federation.node_description import ADD_UP_TABLE, TABLE_QUERY
from bfl.federation.wire import CLOSE, CONFIG, RUN_CANNOT_GO_ON, TrainTask
from clients import closing, description, masked
from clients.examples import PreparedClient, prepare_client
from clients.node import (
    Node,
    cached_configuration,
    log_error,
    reason_for_server,
    refuse_task,
    tell_operator,
)
from clients.round import train_round

Work = Callable[[Message, Context], Message]
ClientWork = Callable[[Message, Context, TrainTask, PreparedClient], Message]

TIMED_OUT = 75  # exit status of an actor that took too long

app = ClientApp()


def reports_errors(work: Work) -> Work:
    """Return a client's work such that what it raises is sent to the server.

    Flower's engines send the message of an exception and drop its traceback. A simulated client
    sends both. A real one sends what kind it was; what the error says may hold its data, paths or
    settings, and stays in its own log, but for messages that are public.
    """

    @wraps(work)
    def guard(message: Message, context: Context) -> Message:
        try:
            return work(message, context)
        except Exception as error:
            simulated = in_simulation(context.node_config)
            # Others may be luckier, and the result would not say so.
            code = RUN_CANNOT_GO_ON if isinstance(error, LostStateError) else CLIENT_RAISED
            reason = reason_for_server(error, simulated)
            if not simulated:
                log_error(error)
        return Message(Error(code=code, reason=reason), reply_to=message)

    return guard


@app.train()
@reports_errors
def train(message: Message, context: Context) -> Message:
    """Train the received posterior on this client's data for some epochs (Algorithm 1)."""
    return _work_in_time(_train, message, context)


def _train(message: Message, context: Context, task: TrainTask, client: PreparedClient) -> Message:
    masks = client.configuration.exchange.secure_sums
    return (masked.train_masked_round if masks else train_round)(message, context, task, client)


@app.train(CLOSE.partition(".")[2])
@reports_errors
def close(message: Message, context: Context) -> Message:
    """Add up over this client's data what the closing round asks of the final network."""
    return _work_in_time(closing.measure_closing_sums, message, context)


@app.evaluate()
@reports_errors
def evaluate(message: Message, context: Context) -> Message:
    """Measure the final, closed model on the test data of this node's own."""
    return _work_in_time(closing.measure_final_model, message, context)


# Besides its task in a round whose updates are masked.
for _stage, _answer in masked.STAGES.items():
    app.train(_stage)(reports_errors(_answer))

# Before the first round.
describe = reports_errors(description.describe)
app.query()(describe)
app.query(TABLE_QUERY.partition(".")[2])(reports_errors(description.describe_table))
app.train(ADD_UP_TABLE.partition(".")[2])(reports_errors(description.add_up_table))


def _work_in_time(work: ClientWork, message: Message, context: Context) -> Message:
    """Return a prepared client's answer to a task, for which it has ``client-timeout``."""
    config: Any = message.content[CONFIG]
    task = TrainTask.from_config(config)
    client, began = cached_client(context, task), time.monotonic()
    keys = client.configuration.keys
    with deadline(client.node, keys.client_timeout):
        reply = work(message, context, task, client)
    if not client.node.simulated:
        done = "closing sums" if work is closing.measure_closing_sums else "the final model tested"
        done = f"round {task.server_round}/{keys.rounds}" if work is _train else done
        last = ", the last" if work is _train and task.server_round == keys.rounds else ""
        seconds = time.monotonic() - began
        name = keys.name or message.metadata.run_id
        tell_operator(f"run {name}, {done}{last}: {client.examples.size} examples, {seconds:.1f} s")
    return reply


def cached_client(context: Context, task: TrainTask) -> PreparedClient:
    """Return the client that a task is for, as it was prepared for the same task before."""
    examples = None if task.examples is None else task.examples.tobytes()
    node_config = tuple(sorted(context.node_config.items()))
    # One text for all clients of the process, each of whose messages brings one of its own.
    key = (node_config, sys.intern(task.configuration), task.num_classes, examples)
    clients = _clients_of_run(context.run_id)
    # One a partition, so that no server fills the memory by asking for other examples each round.
    before, client = clients.get(task.partition_id, (None, None))
    if client is None or before != key:
        node = Node.of(context)
        configuration = cached_configuration(task.configuration, node.plugins_folder)
        refuse_task(task, node, configuration)
        with deadline(node, configuration.keys.client_timeout):
            client = prepare_client(node, task, configuration)
        clients[task.partition_id] = (key, client)
        if not node.simulated:
            model = f"{configuration.words['model']}, {configuration.inference.name}"
            name = configuration.keys.name or context.run_id
            tell_operator(f"takes part in run {name}: {model}")
            for line in client.data.said if node.dataset else ():
                tell_operator(line)
    return client


@lru_cache(maxsize=1)
def _clients_of_run(run_id: int) -> dict[int, tuple[Any, PreparedClient]]:
    """Return a run's clients of this process, by partition id, with what each was asked for."""
    return {}


@contextmanager
def deadline(node: Node, seconds: float) -> Iterator[None]:
    """End this process if the work inside takes longer, where the engine starts another one.

    A TensorFlow graph that runs cannot be interrupted. A Ray actor's process ends, which Ray
    replaces and the server hears of at once. Elsewhere nothing is done: a SuperNode's process is
    Flower's to end, and the serial engine's is everybody's.
    """
    if not node.in_actor:
        yield
        return
    timer = threading.Timer(seconds, os._exit, [TIMED_OUT])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
