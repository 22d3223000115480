"""The ClientApp: trains, adds up for a closing, and describes its node."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from bfl.errors import ConfigurationError
from bfl.experiments.run.network import trainer_for
from bfl.federation.node_description import (
    ADD_UP_TABLE,
    TABLE_QUERY,
    NetworkQuery,
    NodeDescription,
    code_digest,
    manifest_content,
)
from bfl.federation.secure_aggregation import messages as masked
from bfl.federation.wire import CLOSE, CONFIG, PRIVATE, TrainTask
from bfl.plugins import load_plugins
from clients.closing import closing_sums
from clients.examples import (
    PreparedClient,
    cached_client,
    data_problem,
    find_reading,
    label_problem,
    own_examples,
    personal_model_problem,
)
from clients.masked import advertise_keys, confirm, share_keys, unmask
from clients.node import Node
from clients.process import (
    cached_configuration,
    deadline,
    reason_for_server,
    reports_errors,
    start_tensorflow,
)
from clients.round import train_round
from clients.tables import add_up_table, describe_table

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
    """Return a prepared client's answer to a task; both together have ``client-timeout``."""
    config: Any = message.content[CONFIG]
    task = TrainTask.from_config(config)
    started = time.monotonic()
    client = cached_client(message, context, task)
    with deadline(client.configuration.keys.client_timeout - (time.monotonic() - started)):
        return work(message, context, task, client)


# What a client answers besides its task in a round whose updates are masked.
for _kind, _answer in (
    (masked.ADVERTISE_KEYS, advertise_keys),
    (masked.SHARE_KEYS, share_keys),
    (masked.CONFIRM, confirm),
    (masked.UNMASK, unmask),
):
    app.train(_kind)(reports_errors(_answer))


@app.query()
@reports_errors
def describe(message: Message, context: Context) -> Message:
    """Describe this node: its partition, its own number of examples, and its code."""
    node = Node.of(context)
    query: Any = message.content.get(CONFIG, {})
    # Before the data, which a plugin may be the source of.
    plugins = _plugin_problem(query, node)
    data = "" if plugins else data_problem(query, node)
    unusable = bool(plugins or data)
    description = NodeDescription(
        partition_id=node.partition_id,
        num_partitions=node.num_partitions,
        own_examples=0
        if unusable
        else own_examples(node, find_reading(query, node), private=query.get(PRIVATE) is True),
        code=code_digest(),
        allows_attack=node.allows_attack,
        keeps_state=node.simulated or bool(node.state_dir),
        plugins=plugins,
        data=data,
        labels="" if unusable else label_problem(query, node),
        personal_model="" if unusable else personal_model_problem(query, node),
        noise_anew=not node.simulated,
        reads_run_paths=node.reads_run_paths,
    )
    return Message(description.to_content(), reply_to=message)


def _plugin_problem(query: Mapping[str, Any], node: Node) -> str:
    """Return why the plugins that the server names cannot be used here, or nothing."""
    try:
        load_plugins(str(query.get("plugins", "")), node.plugins_folder)
    except ConfigurationError as error:
        return str(error) if error.public else reason_for_server(error, node.simulated)
    return ""


app.query(TABLE_QUERY.partition(".")[2])(reports_errors(describe_table))
app.train(ADD_UP_TABLE.partition(".")[2])(reports_errors(add_up_table))


@app.query("network")
@reports_errors
def network(message: Message, context: Context) -> Message:
    """Say which parameters the run's network has, for a server that builds none."""
    query = NetworkQuery.from_content(message.content)
    configuration = cached_configuration(query.configuration, Node.of(context).plugins_folder)
    start_tensorflow()
    trainer = trainer_for(configuration, query.image_shape, query.num_classes)
    return Message(manifest_content(trainer.network.manifest), reply_to=message)
