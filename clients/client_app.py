"""The ClientApp: says which client a node plays, and trains.

A node's configuration (``--node-config`` of a SuperNode; set by Flower in a simulation) has

- ``partition-id`` and ``num-partitions``: which client of how many it plays;
- ``data-dir``: where archives lie on its machine, in place of the run's ``data-dir``;
- ``dataset``: data of its own, for instance ``"npz:/data/site0.npz"``: all training images in it
  are this client's, and nothing of the run's data set is used here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from bfl import randomness
from bfl.client_metrics import (
    MEMORY,
    NUM_EXAMPLES,
    TRAIN_DIVERGENCE,
    TRAIN_DIVERGENCE_PER_EXAMPLE,
    TRAIN_LIKELIHOOD,
    TRAIN_OBJECTIVE,
    TRAIN_SECONDS,
)
from bfl.code import code_digest
from bfl.configuration import Configuration
from bfl.datasets.cache import cached_dataset
from bfl.engine.resources import resident_memory
from bfl.errors import ConfigurationError
from bfl.wire import (
    ARRAYS,
    CONFIG,
    NodeDescription,
    TrainTask,
    posterior_from_arrays,
    reply_content,
)
from clients.guard import deadline, reports_errors
from clients.own_test import own_test_metrics
from clients.process import (
    TrainingData,
    cached_configuration,
    own_data,
    shared_data,
    start_tensorflow,
    trainer_for,
)
from clients.state import client_state

app = ClientApp()


def _node_setting(node_config: Mapping[str, Any], key: str) -> int:
    if key not in node_config:
        raise ConfigurationError(
            f"node configuration: {key} is missing; start the SuperNode with "
            "--node-config 'partition-id=0 num-partitions=2'"
        )
    return int(node_config[key])


@app.query()
@reports_errors
def describe(message: Message, context: Context) -> Message:
    """Say which client this node plays, how much data of its own it has, and which code it runs."""
    node = context.node_config
    own = str(node.get("dataset", ""))
    description = NodeDescription(
        partition_id=_node_setting(node, "partition-id"),
        num_partitions=_node_setting(node, "num-partitions"),
        own_examples=len(cached_dataset(own, "").train_labels) if own else 0,
        code=code_digest(),
    )
    return Message(description.to_content(), reply_to=message)


@app.train()
@reports_errors
def train(message: Message, context: Context) -> Message:
    """Train the received posterior on this client's data for some epochs (Algorithm 1)."""
    config: Any = message.content[CONFIG]
    task = TrainTask.from_config(config)
    configuration = cached_configuration(task.configuration)
    with deadline(configuration.keys.client_timeout):
        return _train(message, context, task, configuration)


def _train(
    message: Message, context: Context, task: TrainTask, configuration: Configuration
) -> Message:
    started = time.perf_counter()
    keys, data = configuration.keys, _training_data(configuration, context.node_config)
    examples = _examples(task, data, context.node_config)
    start_tensorflow()
    from clients.local_training import LocalTask, learning_rate

    arrays: Any = message.content[ARRAYS]
    received = posterior_from_arrays(arrays)
    state = client_state(context, task) if keys.optimizer_state == "keep" else None
    trainer = trainer_for(configuration, data, task.num_classes)
    result = trainer.train(
        data.images,
        data.labels,
        LocalTask(
            received=received,
            prior=configuration.prior.normal(received),
            examples=examples,
            epochs=keys.local_epochs,
            learning_rate=learning_rate(
                keys.learning_rate, task.server_round, keys.lr_decay, keys.lr_silent_rounds
            ),
            seed=keys.seed,
            key_labels=(task.server_round, task.partition_id),
            optimizer_state=state.load(before=task.server_round) if state else {},
        ),
    )
    if state:
        state.save(task.server_round, result.optimizer_state)
    metrics = {
        NUM_EXAMPLES: int(examples.size),
        TRAIN_OBJECTIVE: result.objective,
        TRAIN_LIKELIHOOD: result.negative_log_likelihood,
        TRAIN_DIVERGENCE: result.divergence,
        TRAIN_DIVERGENCE_PER_EXAMPLE: result.divergence / examples.size,
        TRAIN_SECONDS: time.perf_counter() - started,
        MEMORY: resident_memory(),
    }
    own = str(context.node_config.get("dataset", ""))
    metrics.update(own_test_metrics(own, configuration, task, result.posterior))
    posterior = result.posterior
    if task.partition_id < keys.attackers:
        generator = randomness.generator(keys.seed, "attack", task.server_round, task.partition_id)
        corrupted = configuration.attack.corrupt(posterior, received, generator)
        # A hostile client knows what is checked: it stays where it is not refused at once.
        posterior = trainer.network.manifest.raised(corrupted)
    return Message(reply_content(posterior, metrics), reply_to=message)


def _examples(task: TrainTask, data: TrainingData, node: Mapping[str, Any]) -> Any:
    """Return the positions (N,) of the client's examples in the data.

    Raises:
        ConfigurationError: Nobody has said which they are: all clients would train on all of the
            run's data.
    """
    if task.examples is not None:
        return task.examples
    if node.get("dataset"):
        return np.arange(data.size)
    raise ConfigurationError(
        f"client {task.partition_id} has no examples: the server has assigned none (the Strategy's "
        "argument partition) and the node has no data of its own (dataset in its configuration)"
    )


def _training_data(configuration: Configuration, node: Mapping[str, Any]) -> TrainingData:
    """Return the node's own data if it has some, and the run's otherwise."""
    if node.get("dataset"):
        return own_data(str(node["dataset"]))
    keys = configuration.keys
    return shared_data(keys.dataset, str(node.get("data-dir", keys.data_dir)))
