"""A client's personal model: which one it is, and what it does in a round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from bfl.learning.priors import Density
from bfl.learning.training import LocalResult, PersonalTask
from bfl.posteriors import Posterior
from clients.examples import data_asked_of
from clients.node import Node
from clients.state import PartStates

if TYPE_CHECKING:
    pass


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


def kept_of_model(configuration: Configuration, result: LocalResult, word: str) -> Arrays:
    """Return what is kept of a personal model, with its word; nothing without a model."""
    if not result.personal:
        return {}
    named = (word or configuration.words["model"]).encode()
    return {**result.personal, _WORD: np.frombuffer(named, np.uint8)}


def personal_task(
    configuration: Configuration, task: TrainTask, states: PartStates, word: str
) -> PersonalTask | None:
    """Return what the client's personal model does in a round; None if it has none.

    Args:
        configuration: The run's configuration.
        task: The round's task.
        states: What the client has kept.
        word: The model's word; empty: the federation's own.

    Raises:
        ConfigurationError: What was kept is of another model.
    """
    personalization = configuration.personalization
    if not isinstance(personalization, PersonalModel):
        return None
    keys = configuration.keys
    _check_model(task, states.of_part(personalization), word or configuration.words["model"])

    def prior(begun: Posterior) -> Density:
        return configuration.personal_prior.density(begun, {})

    return PersonalTask(
        state=states.of_part(personalization),
        seed=int(randomness.generator(keys.seed, "personal", task.partition_id).integers(2**62)),
        prior=prior,
        learning_rate=personalization.personal_learning_rate,
        keeps_optimizer=keys.optimizer_state == "keep",
    )


def _check_model(task: TrainTask, state: Arrays, word: str) -> None:
    before = state[_WORD].tobytes().decode() if _WORD in state else word
    if before != word:
        other = ConfigurationError(
            f"client {task.partition_id}: the personal model that it kept in round "
            f"{task.pooled_round} is '{before}', and it would be '{word}' now (personal-model in "
            f"the node's configuration); allowed: '{before}' to the end of the run"
        )
        raise public(other)
