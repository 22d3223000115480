"""State of a client process between tasks: configuration and data, loaded once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.configuration import Configuration, resolve
from bfl.data.datasets import Dataset
from bfl.data.datasets.cache import cached_dataset
from bfl.data.datasets.reading import AS_STORED, Reading
from bfl.data.images import Images
from bfl.engine.resources import cpus_of_this_process
from bfl.errors import DataError
from bfl.plugins import ANY_PLUGIN, PluginPolicy, activate
from bfl.texts import from_json


@dataclass(frozen=True)
class TrainingData:
    """Training images (N, H, W, C), labels (N,), and the answers of other tasks in their place."""

    images: Images
    labels: npt.NDArray[np.integer[Any]]
    targets: npt.NDArray[np.floating[Any]] | None = None

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the images."""
        height, width, channels = self.images.shape[1:]
        return height, width, channels

    @property
    def size(self) -> int:
        """The number of examples."""
        return len(self.labels)


@lru_cache(maxsize=16)
def _resolved(text: str, policy: PluginPolicy) -> Configuration:
    return resolve(from_json(text), check_data=False, on_client=True, policy=policy)


def cached_configuration(text: str, policy: PluginPolicy = ANY_PLUGIN) -> Configuration:
    """Return the configuration that a JSON object of flat keys describes.

    The server has checked that its data are there; this machine may keep them elsewhere. What the
    server alone reads is not sent, and has its default here.

    Args:
        text: The JSON object.
        policy: Where plugins are on this machine, and which of them it takes.

    Raises:
        ConfigurationError: A plugin is missing here, is not taken, or is another than the server's.
    """
    configuration = _resolved(text, policy)
    # The process may have played a client of another run since.
    activate(configuration.keys.plugins)
    return configuration


def shared_data(dataset: str, data_dir: str, reading: Reading = AS_STORED) -> TrainingData:
    """Return the run's training data, of which each client has its part."""
    return _training_data(cached_dataset(dataset, data_dir, reading))


def own_data(location: str, reading: Reading = AS_STORED) -> TrainingData:
    """Return the training data that a node holds by itself: all of them are its own.

    Raises:
        DataError: Which class is which is said by these data alone, and not as the run says it.
    """
    dataset = cached_dataset(location, "", reading)
    if dataset.numbered_here:
        raise DataError(
            f"{dataset.name}: {dataset.numbered_here}; with data of your own, labels have to be "
            "integers that count from 0 as the run's do, or texts besides an array class_names; a "
            "folder of images has a classes.txt, and a table FILE.csv a FILE.columns.json"
        )
    return _training_data(dataset)


def _training_data(dataset: Dataset) -> TrainingData:
    targets = (
        np.asarray(dataset.trained_on, np.float32) if dataset.train_targets is not None else None
    )
    return TrainingData(dataset.train_images, dataset.train_labels, targets)


def start_tensorflow() -> None:
    """Size TensorFlow's threads to this process's share of the CPUs, before its first use."""
    from bfl.keras import configure

    configure(cpus_of_this_process())
