"""The ClientApp: says which client a node plays, and trains.

A node's configuration (``--node-config`` of a SuperNode; set by Flower in a simulation) has

- ``partition-id`` and ``num-partitions``: which client of how many it plays;
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

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from bfl import randomness
from bfl.code import code_digest
from bfl.configuration import Configuration
from bfl.configuration.privacy import says_nothing_measured
from bfl.errors import ConfigurationError
from bfl.experiments.run.trainer import personal_architecture, trainer_for
from bfl.federation.client_metrics import NUM_EXAMPLES
from bfl.federation.exchanges import Vectors, unpacked
from bfl.federation.node_description import NetworkQuery, NodeDescription, manifest_content
from bfl.federation.outgoing import sent as sent_update
from bfl.federation.parts import Arrays
from bfl.federation.privacy.normals import SystemNormals
from bfl.federation.secure_aggregation.on_the_wire import (
    ADVERTISE_KEYS,
    CONFIRM,
    SHARE_KEYS,
    UNMASK,
    MaskedTask,
)
from bfl.federation.wire import (
    ARRAYS,
    CLOSE,
    CONFIG,
    PRIVATE,
    TrainTask,
    posterior_from_arrays,
    reply_content,
)
from bfl.learning.training import LocalResult, LocalTask
from bfl.plugins import activate
from bfl.posteriors import Manifest, Posterior
from clients.closing import closed
from clients.evaluation import evaluated_metrics, own_test_metrics
from clients.examples import client_examples, data_problem, label_problem, labels_and_classes
from clients.guard import deadline, reason_for_server, refuse, reports_errors
from clients.heads import Head
from clients.masked import (
    advertised,
    checked_task,
    confirmed,
    held_in_range,
    masked_reply,
    shared,
    unmasked,
)
from clients.metrics import own_examples, private_metrics, training_metrics
from clients.node import Node
from clients.personal import kept_of_model, personal_model, personal_model_problem, personal_task
from clients.process import (
    TrainingData,
    cached_configuration,
    own_data,
    shared_data,
    start_tensorflow,
)
from clients.state import (
    PartStates,
    client_state,
    keeps_state,
    named_optimizer,
    optimizer_arrays,
    received_extras,
    taken_up,
)

if TYPE_CHECKING:
    from bfl.learning.networks.network import Network
    from bfl.learning.training.trainer import LocalTrainer

app = ClientApp()


@app.query()
@reports_errors
def describe(message: Message, context: Context) -> Message:
    """Say which client this node plays, how much data of its own it has, and which code it runs."""
    node = Node.of(context)
    question: Any = message.content.get(CONFIG, {})
    # Before the data, which a plugin may be the source of.
    plugins = _plugin_problem(message, node)
    data = "" if plugins else data_problem(message, node)
    unusable = bool(plugins or data)
    description = NodeDescription(
        partition_id=node.partition_id,
        num_partitions=node.num_partitions,
        own_examples=0 if unusable else own_examples(node, private=question.get(PRIVATE) is True),
        code=code_digest(),
        allows_attack=node.allows_attack,
        keeps_state=node.simulated or bool(node.state_dir),
        plugins=plugins,
        data=data,
        labels="" if unusable else label_problem(message, node),
        personal_model="" if unusable else personal_model_problem(message, node),
        noise_anew=not node.simulated,
        reads_run_paths=node.reads_run_paths,
    )
    return Message(description.to_content(), reply_to=message)


def _plugin_problem(message: Message, node: Node) -> str:
    """Return why the plugins that the server names cannot be used here, or nothing."""
    asked: Any = message.content.get(CONFIG, {})
    try:
        activate(str(asked.get("plugins", "")), node.plugins)
    except ConfigurationError as error:
        return str(error) if error.public else reason_for_server(error, node.simulated)
    return ""


@app.train(ADVERTISE_KEYS)
@reports_errors
def advertise_keys(message: Message, context: Context) -> Message:
    """Make this client's keys of a round whose updates are masked."""
    return advertised(message, context)


@app.train(SHARE_KEYS)
@reports_errors
def share_keys(message: Message, context: Context) -> Message:
    """Share this client's secrets of the round with its neighbours."""
    return shared(message, context)


@app.train(CONFIRM)
@reports_errors
def confirm(message: Message, context: Context) -> Message:
    """Confirm to the neighbours who is left in the round."""
    return confirmed(message, context)


@app.train(UNMASK)
@reports_errors
def unmask(message: Message, context: Context) -> Message:
    """Give what takes the masks off the sum of the round."""
    return unmasked(message, context)


@app.query("network")
@reports_errors
def network(message: Message, context: Context) -> Message:
    """Say which parameters the run's network has, for a server that builds none."""
    query = NetworkQuery.from_content(message.content)
    configuration = cached_configuration(query.configuration, Node.of(context).plugins)
    start_tensorflow()
    trainer = trainer_for(configuration, query.image_shape, query.num_classes)
    return Message(manifest_content(trainer.network.manifest), reply_to=message)


@app.train()
@reports_errors
def train(message: Message, context: Context) -> Message:
    """Train the received posterior on this client's data for some epochs (Algorithm 1)."""
    config: Any = message.content[CONFIG]
    task = TrainTask.from_config(config)
    node = Node.of(context)
    configuration = cached_configuration(task.configuration, node.plugins)
    refuse(task, node, configuration)
    with deadline(configuration.keys.client_timeout):
        return _train(message, context, task, configuration)


@app.train(CLOSE.partition(".")[2])
@reports_errors
def close(message: Message, context: Context) -> Message:
    """Add up over this client's data what the closing round asks of the final network."""
    config: Any = message.content[CONFIG]
    task = TrainTask.from_config(config)
    node = Node.of(context)
    configuration = cached_configuration(task.configuration, node.plugins)
    refuse(task, node, configuration)
    with deadline(configuration.keys.client_timeout):
        data = _training_data(configuration, node)
        return closed(message, context, task, configuration, data)


def _train(
    message: Message, context: Context, task: TrainTask, configuration: Configuration
) -> Message:
    started = time.perf_counter()
    node, keys, schedule = Node.of(context), configuration.keys, configuration.schedule
    data = _training_data(configuration, node)
    examples = client_examples(task, data, node, configuration)
    labels, classes = labels_and_classes(task, data, node, configuration, examples)
    # Before it trains and keeps a state for what it would not send.
    told = _told(message, configuration, task, node, int(examples.size))
    start_tensorflow()
    arrays: Any = message.content[ARRAYS]
    from_server = posterior_from_arrays(arrays, _variance_not_sent(configuration))
    parts = configuration.parts
    extras = received_extras(message.content, parts, from_server)
    keeps_optimizer = keys.optimizer_state == "keep"
    store = client_state(context, node, task) if keeps_optimizer or keeps_state(parts) else None
    kept = taken_up(store, task)
    states = PartStates.of(parts, kept, task, from_server)
    model = personal_model(configuration, task, node)
    trainer = trainer_for(configuration, data.image_shape, classes, model)
    head = Head.of(configuration, trainer.network, states.of_part(configuration.shared))
    received = head.joined(from_server)
    local_task = LocalTask(
        received=received,
        examples=examples,
        epochs=configuration.workload.epochs(
            keys.seed, task.server_round, task.partition_id, node.num_partitions, keys.local_epochs
        ),
        learning_rate=schedule.learning_rate(keys.learning_rate, task.server_round, keys.rounds),
        seed=keys.seed,
        key_labels=(task.server_round, task.partition_id),
        optimizer_state=optimizer_arrays(kept) if keeps_optimizer else {},
        keeps_optimizer=keeps_optimizer,
        personal=personal_task(configuration, task, states, model),
        likelihood_examples=task.likelihood_examples,
        draws=None if node.simulated else SystemNormals(),
        **_of_parts(configuration, states, received, extras, trainer.network),
    )
    result = trainer.train(data.images, labels, local_task)
    metrics = _measured(configuration, task, node, trainer, model, result, local_task, started)
    learnt, stays = head.split(result.posterior)
    outgoing = _outgoing(configuration, task, learnt, from_server, head.manifest, node)
    packed, posterior = _packed(configuration, outgoing, from_server)
    trained = replace(
        result.trained(local_task, posterior, extras),
        received=from_server,
        head=stays,
        personal=kept_of_model(configuration, result, model),
    )
    replies, state = states.conclude(trained)
    if store:
        store.save(task.server_round, {**state, **named_optimizer(result.optimizer_state)})
    if told:
        count = int(metrics[NUM_EXAMPLES])
        content = masked_reply(message, context, told, configuration, posterior, from_server, count)
    else:
        content = reply_content(packed, metrics, replies)
    return Message(content, reply_to=message)


def _told(
    message: Message, configuration: Configuration, task: TrainTask, node: Node, examples: int
) -> MaskedTask | None:
    """Return what a masked round tells the client with its task; None: nothing is masked.

    Raises:
        ProtocolError: By it the client sends nothing.
    """
    if not configuration.exchange.secure_sums:
        return None
    if says_nothing_measured(configuration):
        examples = int(private_metrics(task, node, configuration)[NUM_EXAMPLES])
    return checked_task(message, node, configuration, examples)


def _measured(
    configuration: Configuration,
    task: TrainTask,
    node: Node,
    trainer: LocalTrainer,
    model: str,
    result: LocalResult,
    local_task: LocalTask,
    started: float,
) -> dict[str, float | int]:
    """Return what a client says in numbers, also of its models on test images of its own.

    Of an update that is private, nothing that it has measured.
    """
    if says_nothing_measured(configuration):
        return private_metrics(task, node, configuration)
    family = personal_architecture(configuration, model)
    models = (result.posterior, result.personal)
    evaluated = evaluated_metrics(configuration, task, node, trainer, family, models)
    return {
        **training_metrics(result, int(local_task.examples.size), started),
        **own_test_metrics(node, configuration, task, result.posterior, evaluated),
        **evaluated,
    }


def _outgoing(
    configuration: Configuration,
    task: TrainTask,
    learnt: Posterior,
    received: Posterior,
    manifest: Manifest,
    node: Node,
) -> Posterior:
    """Return what the client sends of what it has learnt: a lie, if it is hostile."""
    seed = configuration.keys.seed
    if not configuration.attacks(task.partition_id):
        labels = ("outgoing", task.server_round, task.partition_id)
        normals = randomness.generator(seed, *labels) if node.simulated else SystemNormals()
        return sent_update(configuration.outgoing, learnt, received, normals)
    generator = randomness.generator(seed, "attack", task.server_round, task.partition_id)
    corrupted = configuration.attack.corrupt(learnt, received, generator)
    # A hostile client knows what is checked: it stays where it is not refused at once.
    return manifest.raised(corrupted)


def _packed(
    configuration: Configuration, outgoing: Posterior, received: Posterior
) -> tuple[Vectors, Posterior]:
    """Return what travels of a posterior, and the posterior that the server makes of it."""
    held = held_in_range(configuration, outgoing, received)
    packed = configuration.exchange.pack(held, received)
    return packed, unpacked(configuration.exchange, packed, received)


def _variance_not_sent(configuration: Configuration) -> float | None:
    """Return the variance that stands for those that a broadcast leaves out; None: none does.

    The virtual client that pre-trains is sent all, whatever the broadcast.
    """
    if "variance" in configuration.broadcast.vectors:
        return None
    return configuration.inference.initial_standard_deviation**2


def _of_parts(
    configuration: Configuration,
    states: PartStates,
    received: Posterior,
    extras: Arrays,
    network: Network,
) -> dict[str, Any]:
    """Return what the parts of the method say of a local task."""
    prior, start, correction = configuration.prior, configuration.start, configuration.correction
    return {
        "prior": prior.density(received, states.of_part(prior)),
        "start": start.begin(
            states.of_part(start),
            received,
            lambda: network.initial_posterior(configuration.keys.seed),
        ),
        "offsets": correction.checked_offsets(states.of_part(correction), extras, received),
    }


def _training_data(configuration: Configuration, node: Node) -> TrainingData:
    """Return the node's own data if it has some, and the run's otherwise."""
    if node.dataset:
        return own_data(node.dataset, configuration.keys.reading)
    return shared_data(*node.shared_dataset(configuration.keys))
