"""Clients without TensorFlow: each sends back the posterior that it got."""

from collections.abc import Callable
from typing import Any

from flwr.app import Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from bfl.federation.node_description import NodeDescription
from bfl.federation.wire import TrainTask, posterior_from_arrays, posterior_to_arrays


def numpy_app(
    clients: int, failure: Callable[[TrainTask], Error | None] = lambda task: None, **says: Any
) -> ClientApp:
    """Return an app of so many clients.

    Args:
        failure: What a client answers to a task in place of an update, if anything.
        says: Further fields of its description.
    """
    app = ClientApp()

    def partition(context: Context) -> int:
        return int(context.node_config["partition-id"])

    @app.query()
    def describe(message: Message, context: Context) -> Message:
        description = NodeDescription(partition(context), clients, 0, "", **says)
        return Message(description.to_content(), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays: Any = message.content["arrays"]
        task = TrainTask.from_config(message.content["config"])  # type: ignore[arg-type]
        if error := failure(task):
            return Message(error, reply_to=message)
        metrics = MetricRecord({"num-examples": len(task.examples), "spread": 1.0})  # type: ignore[arg-type]
        posterior = posterior_to_arrays(posterior_from_arrays(arrays))
        return Message(RecordDict({"arrays": posterior, "metrics": metrics}), reply_to=message)

    return app
