"""A client's personal model: which one it is, and what it does in a round."""

from __future__ import annotations

from bfl import randomness
from bfl.configuration import Configuration
from bfl.federation.wire import TrainTask
from bfl.learning.personalizations import PersonalModel
from bfl.learning.priors.base import Density
from bfl.learning.training import PersonalTask
from bfl.posteriors import Posterior
from clients.node import Node
from clients.part_states import PartStates


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


def personal_task(
    configuration: Configuration, task: TrainTask, states: PartStates
) -> PersonalTask | None:
    """Return what the client's personal model does in a round; None if it has none."""
    personalization = configuration.personalization
    if not isinstance(personalization, PersonalModel):
        return None
    keys = configuration.keys

    def prior(begun: Posterior) -> Density:
        return configuration.personal_prior.density(begun, {})

    return PersonalTask(
        state=states.of_part(personalization),
        seed=int(randomness.generator(keys.seed, "personal", task.partition_id).integers(2**62)),
        prior=prior,
        learning_rate=personalization.personal_learning_rate,
        keeps_optimizer=keys.optimizer_state == "keep",
    )
