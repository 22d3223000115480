"""The networks that predict with a run's posterior; TensorFlow is imported when one is made."""

from __future__ import annotations

import json
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from bfl.closing import Closed
from bfl.engine.processes import cpus_of_this_process
from bfl.errors import ConfigurationError, DataError
from bfl.experiments.results.environment import describe_environment
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.network import NetworkDescription
from bfl.experiments.run.resume import Checkpoints
from bfl.posteriors import Manifest, Posterior

if TYPE_CHECKING:
    from bfl.data.images import Images
    from bfl.evaluation.prediction.monte_carlo import Predictor
    from bfl.evaluation.prediction.predictions import FloatArray
    from bfl.evaluation.prediction.predictions import Predictions as Statistics

FINAL = ("evaluation", "final")
"""Labels that key the draws of a run's final evaluation."""

BUSY = (
    "another thread of this process makes a run, whose networks this would share, and both results "
    "would be wrong; wait for its end, or use another process"
)

# A process keeps its networks, whose weights are set anew all the time: one user at a time.
_run = threading.Lock()
_networks = threading.Lock()


@contextmanager
def running_alone() -> Iterator[None]:
    """Make a run inside, after predictions that have begun, unless another thread makes one."""
    if not _run.acquire(blocking=False):
        raise ConfigurationError(BUSY)
    try:
        with _networks:
            yield
    finally:
        _run.release()


@contextmanager
def predicting_alone() -> Iterator[None]:
    """Predict inside, after other predictions, unless another thread makes a run."""
    if _run.locked():
        raise ConfigurationError(BUSY)
    with _networks:
        yield


@dataclass(frozen=True)
class TrainedNetwork:
    """A run's network as it has been trained."""

    description: NetworkDescription
    manifest: Manifest
    posterior: Posterior

    def predict(self, images: Images, samples: int | None, closed: Closed | None) -> Statistics:
        """Return what samples of the posterior predict for checked images (N, H, W, C).

        Args:
            samples: The number M of samples; the m-th is that of the final evaluation. None: as
                that has it, which may be the posterior's mean.
        """
        with predicting_alone():
            _start(self.description)
            predictor = _predictor(json.dumps(self.description.to_dict()))
            self._check(predictor.manifest)
            draws = int(self.description.keys["mc-samples"]) if samples is None else samples

            def drawn() -> Statistics:
                if samples is None and self.description.at_mean:
                    return predictor.predict_at_mean(self.posterior, images)
                seed = int(self.description.keys["seed"])
                return predictor.predict(
                    self.posterior, images, samples=draws, seed=seed, labels=FINAL
                )

            if closed is None:
                return drawn()
            return closed.predict_images(predictor, self.posterior, images, otherwise=drawn)

    def features(self, images: Images) -> FloatArray:
        """Return what the last layer takes (N, D), with weights at the posterior's mean."""
        with predicting_alone():
            _start(self.description)
            predictor = _predictor(json.dumps(self.description.to_dict()))
            self._check(predictor.manifest)
            return predictor.features_at_mean(self.posterior, images).astype(np.float64)

    def keras_model(self) -> Any:
        """Return a plain Keras model; see ``Result.keras_model``."""
        _start(self.description)
        from bfl.keras import keras
        from bfl.learning.inferences import inferences
        from bfl.learning.networks.network import Network

        # Not one of those that the process keeps: it is the caller's to do with as they like.
        network = Network(
            self.description.architecture,
            inferences.create("deterministic"),
            self.description.image_shape,
            len(self.description.class_names),
        )
        self._check(network.manifest, values=True)
        network.load_values(self.manifest, self.posterior.mean, self.posterior.point)
        pixels = keras.Input(self.description.image_shape, name="pixels")
        scaled = keras.layers.Rescaling(1 / 127.5, offset=-1.0, name="scaling")(pixels)
        probabilities = keras.layers.Softmax(name="probabilities")(network.model(scaled))
        return keras.Model(pixels, probabilities, name=network.model.name)

    def _check(self, built: Manifest, *, values: bool = False) -> None:
        """Refuse another network than the posterior's: by name and shape alone of its values."""
        description = self.description
        ours, theirs = (
            [(p.name, p.shape, values or p.gaussian) for p in manifest]
            for manifest in (self.manifest, built)
        )
        if ours == theirs or (values and sorted(ours) == sorted(theirs)):
            return
        pairs = [(a, b) for a, b in zip(ours, theirs, strict=False) if a != b]
        what = f"{pairs[0][0]} and not {pairs[0][1]}" if pairs else "another number of tensors"
        raise DataError(
            f"the posterior is not that of the network {description.keys['model']} with inference "
            f"{description.keys['inference']} for images {description.image_shape} and "
            f"{len(description.class_names)} classes: it has {what}"
        )


def latest(description: NetworkDescription, folder: RunFolder) -> tuple[Posterior, Manifest]:
    """Return posterior and manifest of the last round that an interrupted run has made."""
    if not (checkpoint := Checkpoints(folder).latest()):
        raise DataError(f"{folder.path} has no valid checkpoint: the run has made no round")
    with predicting_alone():
        _start(description)
        return checkpoint.posterior, _predictor(json.dumps(description.to_dict())).manifest


def _start(description: NetworkDescription) -> None:
    """Start TensorFlow with the run's threads; warn of versions that are not those of the run."""
    if "shared" in description.keys:
        raise DataError(
            f"the run's clients share a part of their network (shared is "
            f"'{description.keys['shared']}') and have kept their heads: its posterior predicts "
            "nothing by itself"
        )
    here = describe_environment()
    changed = [
        f"{name} {was} (here {here.get(name)})"
        for name, was in description.versions.items()
        if was != here.get(name)
    ]
    if changed:
        warnings.warn(
            f"the run was made with {', '.join(changed)}: the last digits may differ", stacklevel=4
        )
    from bfl.keras import configure

    cpus = cpus_of_this_process()
    threads = cpus if os.environ.get("BFL_CPUS") else description.threads or cpus
    configure(threads, cpus)


@lru_cache(maxsize=2)
def _predictor(description: str) -> Predictor:
    from bfl.evaluation.prediction.monte_carlo import Predictor
    from bfl.experiments.run.network import statistics_of
    from bfl.learning.networks.network import build_network

    described = NetworkDescription.model_validate_json(description)
    architecture = described.architecture
    network = build_network(
        architecture, described.inference, described.image_shape, len(described.class_names)
    )
    statistics = statistics_of(described.target)
    return Predictor(network, architecture, statistics=statistics)
