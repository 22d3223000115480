"""The ClientApp: describes its node, and trains.

A node's configuration (``--node-config`` of a SuperNode; set by Flower in a simulation) has

- ``partition-id`` and ``num-partitions``: its partition, and the number of clients;
- ``data-dir``: where archives lie on its machine, in place of the run's ``data-dir``;
- ``allow-run-paths``: true if the node may read the paths that the run names, the archive of
  ``dataset="npz:PATH"`` and its ``data-dir``, as every simulated one may;
- ``dataset``: data of its own, for instance ``"npz:/data/site0.npz"``: all training images in it
  are this client's, and nothing of the run's data set is used here;
- ``plugins-dir``: the folder with the files of plugins that it takes, by their names; a simulated
  node takes them from where the run's ``plugins`` say, a SuperNode from nowhere else;
- ``state-dir``: where a client that keeps a state has it, see ``clients.state``;
- ``personal-model``: the architecture of its client's personal model, in place of what the run's
  ``personal-models`` say;
- ``private``: true if the node sends nothing without noise of its own, whatever the server says;
- ``signing-key`` and ``clients-list``: the files with its private key and with its own copy of the
  list of clients; with them a masked exchange is with the clients in that list alone;
- ``exchange``: the one way in which its updates may leave it, such as ``"masked"``;
- ``greatest-weight``: the greatest share of a masked sum that its update may make, 1 by default;
- ``allow-attack``: true if the node may play a hostile client, as every simulated one may.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from bfl.data.datasets import Reading
from bfl.errors import ConfigurationError
from bfl.experiments.run.trainer import check_images, trainer_for
from bfl.federation.node_description import (
    PERSONAL_MODELS,
    NetworkQuery,
    NodeDescription,
    code_digest,
    manifest_content,
)
from bfl.federation.secure_aggregation.on_the_wire import (
    ADVERTISE_KEYS,
    CONFIRM,
    SHARE_KEYS,
    UNMASK,
)
from bfl.federation.wire import (
    CLOSE,
    CONFIG,
    PRIVATE,
    TrainTask,
)
from bfl.learning.models import create_architecture
from bfl.plugins import load_plugins
from clients.closing import closed
from clients.examples import (
    client_examples,
    data_asked_of,
    data_problem,
    label_problem,
    labels_and_classes,
    own_examples,
)
from clients.masked import advertised, confirmed, shared, unmasked
from clients.node import Node
from clients.process import (
    cached_configuration,
    deadline,
    own_data,
    reason_for_server,
    refuse,
    reports_errors,
    shared_data,
    start_tensorflow,
)
from clients.round import PreparedClient, train_round

if TYPE_CHECKING:
    pass

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
    return _in_time(closed, message, context)


Work = Callable[[Message, Context, TrainTask, PreparedClient], Message]


def _in_time(work: Work, message: Message, context: Context) -> Message:
    """Return a prepared client's answer to a task; both together have ``client-timeout``."""
    config: Any = message.content[CONFIG]
    task = TrainTask.from_config(config)
    started = time.monotonic()
    client = cached_client(message, context, task)
    with deadline(client.configuration.keys.client_timeout - (time.monotonic() - started)):
        return work(message, context, task, client)


def cached_client(message: Message, context: Context, task: TrainTask) -> PreparedClient:
    """Return the client that a task is for, as it was prepared if it is asked for the same again.

    Raises:
        BflError: The node refuses the task, or the client cannot train on what it is asked to.
    """
    examples = None if task.examples is None else task.examples.tobytes()
    node = tuple(sorted(context.node_config.items()))
    # One text for all clients of the process, each of whose messages brings one of its own.
    asked = (node, sys.intern(task.configuration), task.num_classes, examples)
    clients = _clients(context.run_id)
    # One a partition, so that no server fills the memory by asking for other examples each round.
    before, client = clients.get(task.partition_id, (None, None))
    if client is None or before != asked:
        client = _prepare_client(Node.of(context), task)
        clients[task.partition_id] = (asked, client)
    return client


@lru_cache(maxsize=1)
def _clients(run_id: int) -> dict[int, tuple[Any, PreparedClient]]:
    """Return a run's clients of this process, by partition id, with what each was asked for.

    Those of the run before are forgotten.
    """
    return {}


def _prepare_client(node: Node, task: TrainTask) -> PreparedClient:
    configuration = cached_configuration(task.configuration, node.plugins_folder)
    refuse(task, node, configuration)
    with deadline(configuration.keys.client_timeout):
        data = (
            own_data(node.dataset, configuration.keys.reading)
            if node.dataset
            else shared_data(*node.shared_dataset(configuration.keys))
        )
        examples = client_examples(task, data, node, configuration)
        labels, classes = labels_and_classes(task, data, node, configuration, examples)
    return PreparedClient(node, configuration, data, examples, labels, classes)


# What a client answers besides its task in a round whose updates are masked.
for _kind, _answer in (
    (ADVERTISE_KEYS, advertised),
    (SHARE_KEYS, shared),
    (CONFIRM, confirmed),
    (UNMASK, unmasked),
):
    app.train(_kind)(reports_errors(_answer))


@app.query()
@reports_errors
def describe(message: Message, context: Context) -> Message:
    """Describe this node: its partition, its own number of examples, and its code."""
    node = Node.of(context)
    asked: Any = message.content.get(CONFIG, {})
    # Before the data, which a plugin may be the source of.
    plugins = _plugin_problem(asked, node)
    data = "" if plugins else data_problem(asked, node)
    unusable = bool(plugins or data)
    description = NodeDescription(
        partition_id=node.partition_id,
        num_partitions=node.num_partitions,
        own_examples=0
        if unusable
        else own_examples(node, Reading.of(asked), private=asked.get(PRIVATE) is True),
        code=code_digest(),
        allows_attack=node.allows_attack,
        keeps_state=node.simulated or bool(node.state_dir),
        plugins=plugins,
        data=data,
        labels="" if unusable else label_problem(asked, node),
        personal_model="" if unusable else personal_model_problem(asked, node),
        noise_anew=not node.simulated,
        reads_run_paths=node.reads_run_paths,
    )
    return Message(description.to_content(), reply_to=message)


def _plugin_problem(asked: Mapping[str, Any], node: Node) -> str:
    """Return why the plugins that the server names cannot be used here, or nothing."""
    try:
        load_plugins(str(asked.get("plugins", "")), node.plugins_folder)
    except ConfigurationError as error:
        return str(error) if error.public else reason_for_server(error, node.simulated)
    return ""


@app.query("network")
@reports_errors
def network(message: Message, context: Context) -> Message:
    """Say which parameters the run's network has, for a server that builds none."""
    query = NetworkQuery.from_content(message.content)
    configuration = cached_configuration(query.configuration, Node.of(context).plugins_folder)
    start_tensorflow()
    trainer = trainer_for(configuration, query.image_shape, query.num_classes)
    return Message(manifest_content(trainer.network.manifest), reply_to=message)


def personal_model_problem(asked: Mapping[str, Any], node: Node) -> str:
    """Return why a node's own personal model cannot be trained on the data there, or nothing.

    Args:
        asked: What the query before the first round says.
        node: The node that is asked; its data can be had.
    """
    word = node.personal_model
    if not word or asked.get(PERSONAL_MODELS) is not True:
        return ""
    data = data_asked_of(asked, node)
    if data is None:
        return ""
    try:
        check_images(word, create_architecture(word), data.image_shape)
    except ConfigurationError as error:
        return f"personal-model in its node configuration: {error}"
    return ""
