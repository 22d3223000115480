"""A client's personal model: which one it is, and what it does in a round."""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.app import Message

from bfl import randomness
from bfl.configuration import Configuration
from bfl.errors import ConfigurationError, public
from bfl.experiments.run.trainer import check_images
from bfl.federation.node_description import PERSONAL_MODELS
from bfl.federation.parts import Arrays
from bfl.federation.wire import CONFIG, TrainTask
from bfl.learning.models import create_architecture
from bfl.learning.personalizations import PersonalModel
from bfl.learning.training import PersonalTask
from clients.examples import data_asked_of
from clients.local_round import ClientOption, LocalRound
from clients.node import Node

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


def personal_model_problem(message: Message, node: Node) -> str:
    """Return why a node's own personal model cannot be trained on the data there, or nothing.

    Args:
        message: The query before the first round.
        node: The node that is asked; its data can be had.
    """
    asked: Any = message.content.get(CONFIG, {})
    word = node.personal_model
    if not word or asked.get(PERSONAL_MODELS) is not True:
        return ""
    data = data_asked_of(message, node)
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
