"""What a client process keeps between tasks: configuration, data and trainer, built once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.configuration import Configuration, resolve
from bfl.datasets import Dataset
from bfl.datasets.cache import cached_dataset
from bfl.engine.resources import cpus_of_this_process
from bfl.errors import ConfigurationError

if TYPE_CHECKING:
    from clients.local_training import LocalTrainer


@dataclass(frozen=True)
class TrainingData:
    """Training images (N, H, W, C), uint8, and labels (N,)."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.integer[Any]]

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(self.labels)


@lru_cache(maxsize=16)
def cached_configuration(text: str) -> Configuration:
    """Return the configuration that a JSON object of flat keys describes.

    The server has checked that its data are there; this machine may keep them elsewhere.
    """
    return resolve(json.loads(text), check_data=False)


@lru_cache(maxsize=2)
def shared_data(dataset: str, data_dir: str) -> TrainingData:
    """Return the run's training data, of which each client has its part."""
    return _training_data(cached_dataset(dataset, data_dir))


@lru_cache(maxsize=2)
def own_data(location: str) -> TrainingData:
    """Return the training data that a node holds by itself: all of them are its own."""
    return _training_data(cached_dataset(location, ""))


def _training_data(dataset: Dataset) -> TrainingData:
    return TrainingData(images=dataset.train_images, labels=dataset.train_labels)


def trainer_for(configuration: Configuration, data: TrainingData, classes: int) -> LocalTrainer:
    """Return the trainer for a configuration, built and traced once per process.

    Raises:
        ConfigurationError: The images are smaller than the architecture takes.
    """
    from bfl.keras import has_gpu
    from bfl.networks.network import build_network
    from clients.local_training import local_trainer

    height, width, channels = data.images.shape[1:]
    shape = (height, width, channels)
    if min(shape[:2]) < configuration.architecture.minimum_side:
        raise ConfigurationError(
            f"model '{configuration.words['model']}' takes images of at least "
            f"{configuration.architecture.minimum_side} pixels a side, not {shape[0]} x {shape[1]}"
        )
    keys = configuration.keys
    network = build_network(
        configuration.architecture, configuration.inference, shape, classes, keys.precision
    )
    automatic = configuration.architecture.compilable and has_gpu()
    compiled = keys.jit == "on" or (keys.jit == "auto" and automatic)
    return local_trainer(
        network, keys.batch_size, configuration.augmentation, configuration.optimizer, compiled
    )


def start_tensorflow() -> None:
    """Size TensorFlow's threads to this process's share of the CPUs, before its first use."""
    from bfl.keras import configure

    configure(cpus_of_this_process())
