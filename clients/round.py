"""One round on a client: what the server has sent becomes an update, in the order of the method.

A round without any option reads the posterior, trains and replies. What else a run or its node asks
for stands behind an ``if`` that names it. Each part of a method has its client half called here:
its state before training, what it sends and keeps after. bfl/federation/parts.py has these methods;
docs/extending.md says which to write.
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
from bfl.federation import client_metrics as names
from bfl.federation import wire
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
from clients.examples import PreparedClient, metrics_under_privacy
from clients.masked import masked_reply, read_task
from clients.node import Node, start_tensorflow


def train_round(
    message: Message, context: Context, task: wire.TrainTask, client: PreparedClient
) -> Message:
    """Return a client's reply to a task: its update, trained from what the server has sent.

    Source: Fischer et al. (2024), Algorithm 1, the clients' lines.
    """
    started = time.perf_counter()
    node, configuration, examples = client.node, client.configuration, client.examples
    keys, parts, exchange = configuration.keys, configuration.parts, configuration.exchange
    private = configuration.hides_measurements
    keyed = (task.server_round, task.partition_id)
    num_examples = int(examples.size)  # |D_k|

    # Read first: a client that refuses a masked task must not have trained, or kept a state.
    masked_task = None
    if exchange.secure_sums:
        count = num_examples
        if private:
            count = int(metrics_under_privacy(task, node, configuration)[names.NUM_EXAMPLES])
        masked_task = read_task(message, node, configuration, count)

    # What the server has sent.
    arrays: Any = message.content[wire.ARRAYS]
    # Variances that a broadcast leaves out are the initial ones; pre-training is always sent all.
    whole = "variance" in configuration.broadcast.vectors
    variance = None if whole else configuration.inference.initial_standard_deviation**2
    global_posterior = wire.posterior_from_arrays(arrays, variance)

    # State in: what was kept in the last round that the server has pooled.
    keeps_optimizer = keys.optimizer_state == "keep"
    store, state_before = None, dict[str, Any]()
    if keeps_optimizer or any(part.client_state_name for part in parts):
        store = states.client_state(context, node, task)
        state_before = dict(store.restore(task))
    part_states = states.PartStates()
    broadcast: Arrays = {}
    if parts or wire.EXTRAS in message.content:
        broadcast = states.received_extras(message.content, parts, global_posterior)
        part_states = states.PartStates.of(parts, state_before, task, global_posterior)

    # The network, built once in a process.
    personalization, personal_model = configuration.personalization, ""
    if isinstance(personalization, PersonalModel):
        words = personalization.assignment.words(node.num_partitions)
        personal_model = words[task.partition_id]
    if client.trainer is None:
        start_tensorflow()
        client.trainer = trainer_for(
            configuration, client.data.image_shape, client.classes, personal_model=personal_model
        )
    trainer, manifest = client.trainer, client.trainer.network.manifest
    local_posterior = global_posterior

    # What training does besides.
    more: dict[str, Any] = {"epochs": keys.local_epochs}
    division = None
    # The head, all that stays on the client, is its own: as it was kept, or as it begins.
    if configuration.shared.partial:
        division = configuration.shared.division(manifest)
        head = part_states.of_part(configuration.shared)
        own = (
            Posterior(**{name: head[name] for name in VECTORS})
            if head
            else division.head_of(trainer.network.initial_posterior(keys.seed))
        )
        local_posterior, manifest = division.join(global_posterior, own), division.shared
    if isinstance(personalization, PersonalModel):
        drawn = randomness.generator(keys.seed, "personal", task.partition_id)
        more["personal"] = PersonalTask(
            state=part_states.of_part(personalization),
            seed=int(drawn.integers(2**62)),
            learning_rate=personalization.personal_learning_rate,
            keeps_optimizer=keeps_optimizer,
        )
    if keeps_optimizer:
        more |= {
            "optimizer_state": strip_prefix(states.OPTIMIZER, state_before),
            "keeps_optimizer": True,
        }
    if configuration.start.active:
        more["start"] = configuration.start.begin(
            part_states.of_part(configuration.start),
            local_posterior,
            lambda: trainer.network.initial_posterior(keys.seed),
        )
    if configuration.workload.active:
        more["epochs"] = configuration.workload.epochs(
            keys.seed, *keyed, node.num_partitions, keys.local_epochs
        )
    if configuration.correction.active:
        correction = configuration.correction
        more["offsets"] = correction.offsets(
            part_states.of_part(correction), broadcast, local_posterior
        )
    if configuration.example_privacy.active and not node.simulated:
        more["draws"] = SystemNormals()

    # Local epochs E of the objective, at the learning rate η: ``LocalTask`` says of what, and
    # ``train`` in bfl/learning/training/trainer.py has the loss and the steps.
    prior_state = part_states.of_part(configuration.prior) if parts else {}
    local_task = LocalTask(
        received=local_posterior,
        prior=configuration.prior.density(local_posterior, prior_state),
        examples=examples,
        learning_rate=configuration.schedule.learning_rate(
            keys.learning_rate, task.server_round, keys.rounds
        ),
        seed=keys.seed,
        key_labels=keyed,
        likelihood_examples=task.likelihood_examples,
        rounds=keys.rounds,
        balanced=keys.class_weights == "balanced",
        **more,
    )
    answers = client.labels if client.targets is None else client.targets
    result = trainer.train(client.data.train_images, answers, local_task)
    update = result.posterior
    metrics: dict[str, float | int] = {
        names.NUM_EXAMPLES: num_examples,
        names.TRAIN_OBJECTIVE: result.objective,
        names.TRAIN_LIKELIHOOD: result.negative_log_likelihood,
        names.TRAIN_DIVERGENCE: result.divergence,
        names.TRAIN_DIVERGENCE_PER_EXAMPLE: result.divergence / num_examples,
        names.TRAIN_STEPS: result.steps,
        names.TRAIN_SECONDS: time.perf_counter() - started,
        names.MEMORY: psutil.Process().memory_info().rss / 1e6,
    }
    if private:
        metrics = metrics_under_privacy(task, node, configuration)
    elif keys.evaluated_by == "clients" or node.dataset:
        metrics |= evaluate_models(
            configuration, task, node, trainer, personal_model, update, result.personal
        )

    # State out, but for the parts' (below), and what is done to the update before it is sent.
    state_after: dict[str, Any] = {}
    kept_models: dict[str, Any] = {}
    if keeps_optimizer:
        state_after |= add_prefix(states.OPTIMIZER, result.optimizer_state)
    if result.personal:
        kept_models["personal"] = result.personal
    if division:
        kept_models["head"] = division.head_of(update).vectors()
        update = division.shared_of(update)
    if task.partition_id < configuration.attackers:
        generator = randomness.generator(keys.seed, "attack", *keyed)
        # An attacker knows the server's checks, and stays within them.
        update = manifest.raise_to_minima(
            configuration.attack.corrupt(update, global_posterior, generator)
        )
    elif any(part.active for part in configuration.outgoing):
        update = clip_and_noise(configuration, task, node, update, global_posterior)
    if exchange.secure_sums and any(part.draws for part in configuration.outgoing):
        # Noise can leave the masks' range: it is clamped, as refusing would be by chance. That is
        # post-processing, which costs no ε.
        update = clip_to_range(update, global_posterior)

    # The parts' halves: what is sent besides the posterior, and kept.
    extras: dict[str, Any] = {}
    if parts or wire.EXTRAS in message.content:
        trained = result.to_trained(local_task, update, broadcast)
        trained = replace(trained, received=global_posterior, **kept_models)
        extras, part_arrays = part_states.conclude(trained)
        state_after |= part_arrays
    if store:
        store.save(task.server_round, state_after)

    # The reply.
    if masked_task:
        count = int(metrics[names.NUM_EXAMPLES])
        content = masked_reply(
            message, context, masked_task, configuration, update, global_posterior, count
        )
    else:
        content = wire.reply_content(update, metrics, extras)
    return Message(content, reply_to=message)


def clip_and_noise(
    configuration: Configuration,
    task: wire.TrainTask,
    node: Node,
    update: Posterior,
    global_posterior: Posterior,
) -> Posterior:
    """Return an update as the chain ``outgoing`` sends it, with its noise of client and round.

    A SuperNode draws from the system's randomness, which nobody can draw again.
    """
    keyed = ("outgoing", task.server_round, task.partition_id)
    normals = (
        randomness.generator(configuration.keys.seed, *keyed) if node.simulated else SystemNormals()
    )
    return change_update_by(configuration.outgoing, update, global_posterior, normals)
