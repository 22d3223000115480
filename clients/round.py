"""One round on a client: what the server has sent becomes an update, in the order of the method.

A round without any option reads the posterior, trains and replies. What else a run or its node asks
for stands behind an ``if`` that names it. Each part of a method has its client half called here:
its state before training, what it sends and keeps after. bfl/federation/parts.py has these methods;
docs/extending.md says which to write. ``clients.masked`` has the round whose updates are masked.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import psutil
from flwr.app import Context, Message

from bfl import randomness
from bfl.archives import add_prefix, strip_prefix
from bfl.configuration import Configuration
from bfl.experiments.run.network import trainer_for
from bfl.federation import client_metrics, wire
from bfl.federation.outgoing import change_update_by
from bfl.federation.parts import Arrays
from bfl.federation.privacy import SystemNormals
from bfl.federation.secure_aggregation.masking import clip_to_range
from bfl.learning.personalizations import PersonalModel
from bfl.learning.training import LocalTask, PersonalTask
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import VECTORS
from clients import state as states
from clients.evaluation import evaluate_models
from clients.examples import PreparedClient
from clients.node import Node, start_tensorflow


def train_round(
    message: Message, context: Context, task: wire.TrainTask, client: PreparedClient
) -> Message:
    """Return a client's reply to a task: its update, trained from what the server has sent."""
    update, metrics, extras = train_update(message, context, task, client)
    return Message(wire.reply_content(update, metrics, extras), reply_to=message)


def train_update(
    message: Message, context: Context, task: wire.TrainTask, client: PreparedClient
) -> tuple[Posterior, dict[str, float | int], Arrays]:
    """Return a client's posterior q_k, what it has measured, and what its parts send besides.

    Source: Fischer et al. (2024), Algorithm 1, the clients' lines.
    """
    started = time.perf_counter()
    node, configuration, examples = client.node, client.configuration, client.examples
    keys, parts = configuration.keys, configuration.parts
    round_and_client = (task.server_round, task.partition_id)
    num_examples = int(examples.size)  # |D_k|

    # What the server has sent.
    global_posterior = read_posterior(message, configuration)
    broadcast: Arrays = {}
    if parts or wire.EXTRAS in message.content:
        broadcast = states.read_extras(message.content, parts, global_posterior)

    # State in: what was kept in the last round that the server has pooled.
    keeps_optimizer = keys.optimizer_state == "keep"
    store, state_before = None, dict[str, Any]()
    if keeps_optimizer or any(part.client_state_name for part in parts):
        store = states.client_state(context, node, task)
        state_before = dict(store.restore(task))
    part_states = states.PartStates.of(parts, state_before, task, global_posterior)

    # The network, built once in a process.
    if client.trainer is None:
        start_tensorflow()
        client.trainer = trainer_for(
            configuration,
            client.data.image_shape,
            client.classes,
            personal_model=client.personal_model,
        )
    trainer, manifest = client.trainer, client.trainer.network.manifest
    local_posterior, division = global_posterior, None
    if configuration.shared.partial:
        # The head, all that stays on the client, is its own: as it was kept, or as it begins.
        division = configuration.shared.division(manifest)
        kept_head = part_states.of_part(configuration.shared)
        head = (
            Posterior(**{name: kept_head[name] for name in VECTORS})
            if kept_head
            else division.head_of(trainer.network.initial_posterior(keys.seed))
        )
        local_posterior, manifest = division.join(global_posterior, head), division.shared

    # Local epochs E of the objective, at the learning rate η: ``LocalTask`` says of what, and
    # ``train`` in bfl/learning/training/trainer.py has the loss and the steps.
    local_task = LocalTask(
        received=local_posterior,
        prior=configuration.prior.density(
            local_posterior, part_states.of_part(configuration.prior)
        ),
        examples=examples,
        epochs=keys.local_epochs,
        learning_rate=configuration.schedule.learning_rate(
            keys.learning_rate, task.server_round, keys.rounds
        ),
        seed=keys.seed,
        key_labels=round_and_client,
        likelihood_examples=task.likelihood_examples,
        rounds=keys.rounds,
        balanced=keys.class_weights == "balanced",
    )
    # What training does besides.
    if configuration.workload.active:
        epochs = configuration.workload.epochs(
            keys.seed, *round_and_client, node.num_partitions, keys.local_epochs
        )
        local_task = replace(local_task, epochs=epochs)
    if configuration.start.active:
        start = configuration.start.begin(
            part_states.of_part(configuration.start),
            local_posterior,
            lambda: trainer.network.initial_posterior(keys.seed),
        )
        local_task = replace(local_task, start=start)
    if configuration.correction.active:
        offsets = configuration.correction.offsets(
            part_states.of_part(configuration.correction), broadcast, local_posterior
        )
        local_task = replace(local_task, offsets=offsets)
    if keeps_optimizer:
        optimizer_state = strip_prefix(states.OPTIMIZER, state_before)
        local_task = replace(local_task, optimizer_state=optimizer_state, keeps_optimizer=True)
    personalization = configuration.personalization
    if isinstance(personalization, PersonalModel):
        generator = randomness.generator(keys.seed, "personal", task.partition_id)
        personal = PersonalTask(
            state=part_states.of_part(personalization),
            seed=int(generator.integers(2**62)),
            learning_rate=personalization.personal_learning_rate,
            keeps_optimizer=keeps_optimizer,
        )
        local_task = replace(local_task, personal=personal)
    if configuration.example_privacy.active and not node.simulated:
        local_task = replace(local_task, draws=SystemNormals())

    answers = client.labels if client.targets is None else client.targets
    result = trainer.train(client.data.train_images, answers, local_task)
    update = result.posterior
    metrics: dict[str, float | int] = {
        client_metrics.NUM_EXAMPLES: num_examples,
        client_metrics.TRAIN_OBJECTIVE: result.objective,
        client_metrics.TRAIN_LIKELIHOOD: result.negative_log_likelihood,
        client_metrics.TRAIN_DIVERGENCE: result.divergence,
        client_metrics.TRAIN_DIVERGENCE_PER_EXAMPLE: result.divergence / num_examples,
        client_metrics.TRAIN_STEPS: result.steps,
        client_metrics.TRAIN_SECONDS: time.perf_counter() - started,
        client_metrics.MEMORY: psutil.Process().memory_info().rss / 1e6,
    }
    if configuration.hides_measurements:
        metrics = {client_metrics.NUM_EXAMPLES: client.known_examples}
    elif keys.evaluated_by == "clients" or node.dataset:
        metrics |= evaluate_models(
            configuration, task, node, trainer, client.personal_model, update, result.personal
        )

    # What is done to the update before it is sent.
    kept_models: dict[str, Any] = {"personal": result.personal} if result.personal else {}
    if division:
        kept_models["head"] = division.head_of(update).vectors()
        update = division.shared_of(update)
    if task.partition_id < configuration.attackers:
        generator = randomness.generator(keys.seed, "attack", *round_and_client)
        # An attacker knows the server's checks, and stays within them.
        update = manifest.raise_to_minima(
            configuration.attack.corrupt(update, global_posterior, generator)
        )
    elif any(part.active for part in configuration.outgoing):
        update = apply_outgoing(configuration, task, node, update, global_posterior)
    if configuration.exchange.secure_sums and any(part.draws for part in configuration.outgoing):
        # Noise can leave the masks' range: it is clamped, as refusing would be by chance. That is
        # post-processing, which costs no ε.
        update = clip_to_range(update, global_posterior)

    # State out, and what the parts send besides the posterior.
    trained = result.to_trained(local_task, update, broadcast)
    trained = replace(trained, received=global_posterior, **kept_models)
    extras, state_after = part_states.conclude(trained)
    if keeps_optimizer:
        state_after |= add_prefix(states.OPTIMIZER, result.optimizer_state)
    if store:
        store.save(task.server_round, state_after)
    return update, metrics, extras


def read_posterior(message: Message, configuration: Configuration) -> Posterior:
    """Return the global posterior that the server has sent."""
    arrays: Any = message.content[wire.ARRAYS]
    # Variances that a broadcast leaves out are the initial ones; pre-training is always sent all.
    sends_variances = "variance" in configuration.broadcast.vectors
    variance = None if sends_variances else configuration.inference.initial_standard_deviation**2
    return wire.posterior_from_arrays(arrays, variance)


def apply_outgoing(
    configuration: Configuration,
    task: wire.TrainTask,
    node: Node,
    update: Posterior,
    global_posterior: Posterior,
) -> Posterior:
    """Return an update as the chain ``outgoing`` sends it, with its noise of client and round.

    A SuperNode draws from the system's randomness, which nobody can draw again.
    """
    seed, labels = configuration.keys.seed, ("outgoing", task.server_round, task.partition_id)
    normals = randomness.generator(seed, *labels) if node.simulated else SystemNormals()
    return change_update_by(configuration.outgoing, update, global_posterior, normals)
