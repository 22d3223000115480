"""A network of a single dense layer, of which a training step takes a millisecond.

With Flipout it has Gaussians, and batch normalisation's point values beside them.
"""

from functools import cache
from typing import Any

import numpy as np

from bfl.learning.augmentations import augmentations
from bfl.learning.inferences import inferences
from bfl.learning.models.base import Architecture
from bfl.learning.optimizers import optimizers
from bfl.learning.priors import NormalPrior
from bfl.learning.training import LocalTask
from bfl.posteriors import Posterior

SHAPE, CLASSES, BATCH = (2, 2, 1), 3, 16
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (40, *SHAPE), dtype=np.uint8)
LABELS = RNG.integers(0, CLASSES, 40)
PLAIN: dict[str, Any] = {"momentum": 0.0, "weight-decay": 0.0}


class OneLayer(Architecture):
    """Batch normalisation, perhaps hidden layers of some units, and a dense layer."""

    normalized: bool = True
    hidden: tuple[int, ...] = ()

    def build(self, inference: Any, image_shape: tuple[int, int, int], classes: int) -> Any:
        from bfl.keras import keras

        images = keras.Input(image_shape)
        features = keras.layers.Flatten()(images)
        if self.normalized:
            features = keras.layers.BatchNormalization(name="norm")(features)
        for index, units in enumerate(self.hidden):
            features = keras.layers.ReLU()(inference.dense(units, name=f"dense{index}")(features))
        logits = inference.dense(classes, name="logits", output=True)(features)
        return keras.Model(images, logits)


@cache
def trainer_of(
    inference: str,
    optimizer: Any = None,
    normalized: bool = True,
    hidden: tuple[int, ...] = (),
    **parts: Any,
) -> Any:
    from bfl.learning.networks.network import build_network
    from bfl.learning.training.trainer import LocalTrainer

    architecture = OneLayer(normalized=normalized, hidden=hidden)
    network = build_network(architecture, inferences.create(inference), SHAPE, CLASSES)
    optimizer = optimizer or optimizers.create("sgd", PLAIN)
    return LocalTrainer(network, BATCH, augmentations.create("none"), optimizer, **parts)


def task_of(received: Posterior, **changes: Any) -> LocalTask:
    values: dict[str, Any] = {
        "received": received,
        "prior": NormalPrior(0.0, 1.0),
        "examples": np.arange(40),
        "epochs": 2,
        "learning_rate": 0.05,
        "key_labels": (1, 0),
        "seed": 0,
    }
    return LocalTask(**{**values, **changes})


def posterior_of(network: Any, seed: int, low: float = 0.3, high: float = 1.0) -> Posterior:
    rng = np.random.default_rng(seed)
    manifest = network.manifest
    vectors = (
        rng.normal(size=manifest.gaussian_size),
        rng.uniform(low, high, manifest.gaussian_size) ** 2,
        rng.uniform(0.5, 1.5, manifest.point_size),
    )
    return Posterior(*(vector.astype(np.float32) for vector in vectors))


def train(trainer: Any, task: LocalTask) -> Any:
    return trainer.train(IMAGES, LABELS, task)
