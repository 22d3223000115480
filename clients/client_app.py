"""The ClientApp: trains, adds up for a closing, and describes its node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from bfl.federation.node_description import ADD_UP_TABLE, TABLE_QUERY
from bfl.federation.wire import CLOSE, CONFIG, TrainTask
from clients.closing import closing_sums
from clients.description import add_up_table, describe, describe_table
from clients.examples import PreparedClient, cached_client
from clients.masked import STAGES
from clients.node import reports_errors
from clients.round import train_round

app = ClientApp()


@app.train()
@reports_errors
def train(message: Message, context: Context) -> Message:
    """Train the received posterior on this client's data for some epochs (Algorithm 1)."""
    return _in_time(train_round, message, context)


@app.train(CLOSE.partition(".")[2])
@reports_errors
def close(message: Message, context: Context) -> Message:
    """Add up over this client's data what the closing round asks of the final network."""
    return _in_time(closing_sums, message, context)


Work = Callable[[Message, Context, TrainTask, PreparedClient], Message]


def _in_time(work: Work, message: Message, context: Context) -> Message:
    """Return a prepared client's answer to a task, for which it has ``client-timeout``."""
    config: Any = message.content[CONFIG]
    task = TrainTask.from_config(config)
    client = cached_client(context, task)
    with client.node.deadline(client.configuration.keys.client_timeout):
        return work(message, context, task, client)


# Besides its task in a round whose updates are masked.
for _stage, _answer in STAGES.items():
    app.train(_stage)(reports_errors(_answer))

# Before the first round.
app.query()(describe)
app.query(TABLE_QUERY.partition(".")[2])(reports_errors(describe_table))
app.train(ADD_UP_TABLE.partition(".")[2])(reports_errors(add_up_table))
