"""The options of a client's round: which there are, in which order, and when each is on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import RecordDict

from bfl import randomness
from bfl.configuration import Configuration
from bfl.configuration.configuration import says_nothing_measured
from bfl.errors import ConfigurationError, public
from bfl.experiments.run.trainer import check_images
from bfl.federation.node_description import PERSONAL_MODELS
from bfl.federation.outgoing import sent as sent_update
from bfl.federation.parts import Arrays
from bfl.federation.privacy.noise import SystemNormals
from bfl.federation.wire import ARRAYS, TrainTask, vectors_to_arrays
from bfl.learning.models import create_architecture
from bfl.learning.personalizations import PersonalModel
from bfl.learning.training import PersonalTask
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import VECTORS
from clients.evaluation import EvaluatesModels
from clients.examples import data_asked_of, private_metrics
from clients.local_round import ClientOption, LocalRound
from clients.masked import Masked, StaysInRange
from clients.node import Node
from clients.state import (
    PartStates,
    client_state,
    keeps_state,
    named_optimizer,
    optimizer_arrays,
    received_extras,
    taken_up,
)


def options_of(
    configuration: Configuration, node: Node, partition_id: int, extras_sent: bool
) -> tuple[type[ClientOption], ...]:
    """Return the options of a client in a run, in their order."""
    parts, keys = configuration.parts, configuration.keys
    keeps_optimizer = keys.optimizer_state == "keep"
    masked = configuration.exchange.secure_sums is not None
    hostile = configuration.attacks(partition_id)
    private = says_nothing_measured(configuration)
    evaluates = keys.evaluated_by == "clients" or bool(node.dataset)
    options: dict[type[ClientOption], bool] = {
        Masked: masked,
        KeepsState: keeps_optimizer or keeps_state(parts),
        HasParts: bool(parts) or extras_sent,
        Packs: configuration.exchange.packs,
        StaysInRange: masked and any(part.draws for part in configuration.outgoing),
        Attacks: hostile,
        ChangesUpdate: not hostile and any(part.active for part in configuration.outgoing),
        KeepsHead: configuration.shared.partial,
        TrainsPersonalModel: configuration.personalization.active,
        KeepsOptimizer: keeps_optimizer,
        StartsElsewhere: configuration.start.elsewhere,
        DrawsEpochs: configuration.workload.varies,
        CorrectsGradients: configuration.correction.active,
        DrawsAnew: configuration.example_privacy.active and not node.simulated,
        SaysNothingMeasured: private,
        EvaluatesModels: evaluates and not private,
    }
    return tuple(option for option, on in options.items() if on)


class KeepsState(ClientOption):
    """Arrays that a client keeps from round to round; they count once the server has pooled it."""

    def begin(self, local: LocalRound) -> None:
        """Take up what was kept in the last round that was pooled."""
        self._store = client_state(local.context, local.node, local.task)
        local.kept = taken_up(self._store, local.task)

    def conclude(self, local: LocalRound) -> None:
        """Keep what this round leaves."""
        self._store.save(local.task.server_round, local.keeps)


class HasParts(ClientOption):
    """The client half of the method's parts."""

    def begin(self, local: LocalRound) -> None:
        """Give the parts their states, and what the server has sent for them."""
        parts, received = local.configuration.parts, local.global_posterior
        local.broadcast = received_extras(local.message.content, parts, received)
        self._states = PartStates.of(parts, local.kept, local.task, received)
        local.state_of = self._states.of_part

    def conclude(self, local: LocalRound) -> None:
        """Have the parts say what is sent besides the posterior, and kept."""
        trained = local.result.trained(local.asked, local.sent, local.broadcast)
        trained = replace(trained, received=local.global_posterior, **local.concluded)
        local.extras, kept = self._states.conclude(trained)
        local.keeps |= kept


class Packs(ClientOption):
    """An exchange that packs updates: the parts go on from what the server unpacks."""

    def conclude(self, local: LocalRound) -> None:
        """Pack the posterior, and take it for sent as it is unpacked."""
        exchange = local.configuration.exchange
        self._packed = exchange.pack(local.sent, local.global_posterior)
        local.sent = exchange.unpack(self._packed, local.global_posterior)

    def answer(self, local: LocalRound, content: RecordDict) -> RecordDict:
        """Send what was packed."""
        content[ARRAYS] = vectors_to_arrays(self._packed)
        return content


class Attacks(ClientOption):
    """A hostile client: it trains, and sends something else."""

    def conclude(self, local: LocalRound) -> None:
        """Corrupt what is sent."""
        configuration, task = local.configuration, local.task
        keyed = ("attack", task.server_round, task.partition_id)
        generator = randomness.generator(configuration.keys.seed, *keyed)
        corrupted = configuration.attack.corrupt(local.sent, local.global_posterior, generator)
        # It knows what is checked, and stays where it is not refused at once.
        local.sent = local.manifest.raised(corrupted)


class ChangesUpdate(ClientOption):
    """The chain that an update passes on its way out, such as clipping and noise."""

    def conclude(self, local: LocalRound) -> None:
        """Send what the chain makes of what was learnt."""
        task, configuration = local.task, local.configuration
        keyed = ("outgoing", task.server_round, task.partition_id)
        normals = (
            randomness.generator(configuration.keys.seed, *keyed)
            if local.node.simulated
            else SystemNormals()
        )
        local.sent = sent_update(
            configuration.outgoing, local.sent, local.global_posterior, normals
        )


class KeepsOptimizer(ClientOption):
    """An optimizer that goes on with its arrays from round to round."""

    def prepare(self, local: LocalRound) -> None:
        """Go on with what was kept."""
        state = optimizer_arrays(local.kept)
        local.local_settings |= {"optimizer_state": state, "keeps_optimizer": True}

    def conclude(self, local: LocalRound) -> None:
        """Keep it."""
        local.keeps |= named_optimizer(local.result.optimizer_state)


class StartsElsewhere(ClientOption):
    """Training begins at another posterior than the received one."""

    def prepare(self, local: LocalRound) -> None:
        """Say where it begins."""
        start, seed = local.configuration.start, local.configuration.keys.seed
        local.local_settings["start"] = start.begin(
            local.state_of(start),
            local.received,
            lambda: local.network.initial_posterior(seed),
        )


class DrawsEpochs(ClientOption):
    """Another number of epochs than ``local-epochs``."""

    def prepare(self, local: LocalRound) -> None:
        """Say how many."""
        task, keys = local.task, local.configuration.keys
        local.local_settings["epochs"] = local.configuration.workload.epochs(
            keys.seed,
            task.server_round,
            task.partition_id,
            local.node.num_partitions,
            keys.local_epochs,
        )


class CorrectsGradients(ClientOption):
    """Vectors that are added to the gradient of every step."""

    def prepare(self, local: LocalRound) -> None:
        """Give training the offsets."""
        correction = local.configuration.correction
        state = local.state_of(correction)
        offsets = correction.checked_offsets(state, local.broadcast, local.received)
        local.local_settings["offsets"] = offsets


class DrawsAnew(ClientOption):
    """Noise that protects single examples, at a node of its own: from the system's randomness."""

    def prepare(self, local: LocalRound) -> None:
        """Have training draw from there."""
        local.local_settings["draws"] = SystemNormals()


class SaysNothingMeasured(ClientOption):
    """A client whose update is private: it says no number that it has measured."""

    def conclude(self, local: LocalRound) -> None:
        """Leave what is known anyway."""
        local.metrics = private_metrics(local.task, local.node, local.configuration)


class KeepsHead(ClientOption):
    """The part of the client's network that is never sent: as it was kept, or as it begins."""

    def prepare(self, local: LocalRound) -> None:
        """Put the head that was kept, or that the network begins with, to what was received."""
        shared, network = local.configuration.shared, local.network
        self._division = division = shared.division(network.manifest)
        state = local.state_of(shared)
        own = (
            Posterior(**{name: state[name] for name in VECTORS})
            if state
            else division.head_of(network.initial_posterior(local.configuration.keys.seed))
        )
        local.received = division.joined(local.global_posterior, own)
        local.manifest = division.shared

    def conclude(self, local: LocalRound) -> None:
        """Send the rest of what was learnt, and keep the head."""
        learnt = local.sent
        local.sent = self._division.shared_of(learnt)
        local.concluded["head"] = self._division.head_of(learnt).vectors()


_WORD = "model"
"""Under what name a state has the word of its model: networks of other kinds may be as large."""


def personal_model(configuration: Configuration, task: TrainTask, node: Node) -> str:
    """Return the word of the client's personal model; empty: the federation's own, or none.

    Raises:
        ConfigurationError: The run's ``personal-models`` are not for so many clients.
    """
    personalization = configuration.personalization
    if not isinstance(personalization, PersonalModel):
        return ""
    if node.personal_model:
        return node.personal_model
    return personalization.assignment.words(node.num_partitions)[task.partition_id]


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


class TrainsPersonalModel(ClientOption):
    """A personal model beside the meme, which the client keeps and never sends."""

    def begin(self, local: LocalRound) -> None:
        """Say which model it is."""
        self._word = personal_model(local.configuration, local.task, local.node)
        local.trainer_settings["personal_model"] = self._word

    def prepare(self, local: LocalRound) -> None:
        """Say what training does with it.

        Raises:
            ConfigurationError: What was kept is of another model.
        """
        configuration, task = local.configuration, local.task
        personalization, keys = configuration.personalization, configuration.keys
        assert isinstance(personalization, PersonalModel)
        state = local.state_of(personalization)
        check_model(task, state, self._named(configuration))
        drawn = randomness.generator(keys.seed, "personal", task.partition_id)
        local.local_settings["personal"] = PersonalTask(
            state=state,
            seed=int(drawn.integers(2**62)),
            prior=lambda begun: configuration.personal_prior.density(begun, {}),
            learning_rate=personalization.personal_learning_rate,
            keeps_optimizer=keys.optimizer_state == "keep",
        )

    def conclude(self, local: LocalRound) -> None:
        """Keep it, with its word."""
        if local.result.personal:
            word = np.frombuffer(self._named(local.configuration).encode(), np.uint8)
            local.concluded["personal"] = {**local.result.personal, _WORD: word}

    def _named(self, configuration: Configuration) -> str:
        return self._word or configuration.words["model"]


def check_model(task: TrainTask, state: Arrays, word: str) -> None:
    """Refuse a personal model that is not the one that was kept.

    Raises:
        ConfigurationError: Naming both.
    """
    before = state[_WORD].tobytes().decode() if _WORD in state else word
    if before != word:
        other = ConfigurationError(
            f"client {task.partition_id}: the personal model that it kept in round "
            f"{task.pooled_round} is '{before}', and it would be '{word}' now (personal-model in "
            f"the node's configuration); allowed: '{before}' to the end of the run"
        )
        raise public(other)
