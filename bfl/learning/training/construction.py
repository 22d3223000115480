"""The trainer that a configuration describes, built at most once per process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bfl.configuration import Configuration
from bfl.errors import ConfigurationError

if TYPE_CHECKING:
    from bfl.learning.training.trainer import LocalTrainer


def trainer_for(
    configuration: Configuration, image_shape: tuple[int, int, int], classes: int
) -> LocalTrainer:
    """Return the trainer for a configuration, built and traced once per process.

    Args:
        configuration: The configuration.
        image_shape: Height, width and channels of the images.
        classes: The number of classes.

    Raises:
        ConfigurationError: The images are smaller than the architecture takes.
    """
    from bfl.keras import has_gpu
    from bfl.learning.networks.network import build_network
    from bfl.learning.training.trainer import local_trainer

    if min(image_shape[:2]) < configuration.architecture.minimum_side:
        raise ConfigurationError(
            f"model '{configuration.words['model']}' takes images of at least "
            f"{configuration.architecture.minimum_side} pixels a side, not "
            f"{image_shape[0]} x {image_shape[1]}"
        )
    keys = configuration.keys
    network = build_network(
        configuration.architecture, configuration.inference, image_shape, classes, keys.precision
    )
    automatic = configuration.architecture.compilable and has_gpu()
    compiled = keys.jit == "on" or (keys.jit == "auto" and automatic)
    return local_trainer(
        network,
        keys.batch_size,
        configuration.augmentation,
        configuration.optimizer,
        objective=configuration.objective,
        correction=configuration.correction,
        temperature=keys.temperature,
        compiled=compiled,
    )
