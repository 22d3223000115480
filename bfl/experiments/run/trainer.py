"""The trainer of a configuration, built at most once per process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bfl.configuration import Configuration
from bfl.errors import ConfigurationError
from bfl.learning.models import Architecture, create_architecture
from bfl.learning.personalizations import PersonalModel

if TYPE_CHECKING:
    from bfl.learning.networks.network import Network
    from bfl.learning.training.trainer import LocalTrainer


def trainer_for(
    configuration: Configuration,
    image_shape: tuple[int, int, int],
    classes: int,
    personal_model: str = "",
) -> LocalTrainer:
    """Return the trainer for a configuration and images, built and traced once per process.

    An empty ``personal_model`` is the global one.
    """
    from bfl.keras import has_gpu
    from bfl.learning.networks.network import build_network, build_predictor
    from bfl.learning.training.trainer import PersonalNetwork, local_trainer

    check_images(configuration.words["model"], configuration.architecture, image_shape)
    keys = configuration.keys
    network = build_network(
        configuration.architecture, configuration.inference, image_shape, classes, keys.precision
    )
    automatic = configuration.architecture.compilable and has_gpu()
    compiled = keys.jit == "on" or (keys.jit == "auto" and automatic)
    personalization, personal = configuration.personalization, None
    if isinstance(personalization, PersonalModel):
        own = personal_network(configuration, personal_model, image_shape, classes)
        mean = build_predictor(network, configuration.architecture, keys.precision, role="mean")
        personal = PersonalNetwork(personalization, own, configuration.personal_optimizer, mean)
    return local_trainer(
        network,
        keys.batch_size,
        configuration.augmentation,
        configuration.optimizer,
        objective=configuration.objective,
        correction=configuration.correction,
        temperature=keys.temperature,
        rate_decay=keys.local_lr_decay,
        personal=personal,
        example_privacy=configuration.example_privacy,
        compiled=compiled,
    )


def personal_network(
    configuration: Configuration, model: str, image_shape: tuple[int, int, int], classes: int
) -> Network:
    """Return the network of a personal model, built once per process; see ``trainer_for``."""
    from bfl.learning.networks.network import build_network

    architecture = personal_architecture(configuration, model)
    check_images(model or configuration.words["model"], architecture, image_shape)
    inference, precision = configuration.personal_inference, configuration.keys.precision
    return build_network(architecture, inference, image_shape, classes, precision, "personal")


def personal_architecture(configuration: Configuration, model: str) -> Architecture:
    """Return the architecture of a personal model; an empty name is the global one."""
    if not model:
        return configuration.architecture
    return create_architecture(model, configuration.values)


def check_images(
    word: str, architecture: Architecture, image_shape: tuple[int, int, int], dataset: str = ""
) -> None:
    """Raise ConfigurationError if images (of a data set, if named) are too small for a network."""
    if min(image_shape[:2]) < architecture.minimum_side:
        whose = f", as those of dataset '{dataset}' are" if dataset else ""
        raise ConfigurationError(
            f"model '{word}' takes images of at least {architecture.minimum_side} pixels a side, "
            f"not {image_shape[0]} x {image_shape[1]}{whose}"
        )
