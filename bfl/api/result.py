"""A run's results, opened from its folder; the folder is all that is needed."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.api.predictions import Predictions, checked_images
from bfl.closing import Closed
from bfl.closing.closed import UNLIKE
from bfl.errors import ConfigurationError, DataError, unknown_name
from bfl.evaluation.prediction.predictions import FloatArray
from bfl.evaluation.prediction.predictions import Predictions as Statistics
from bfl.evaluation.regression import Mixtures
from bfl.evaluation.uncertainty import measure_all
from bfl.experiments.results import run_folder as files
from bfl.experiments.run.network import NetworkDescription, network_description
from bfl.files import given_path
from bfl.plugins import load_plugins
from bfl.posteriors import Manifest, Posterior

if TYPE_CHECKING:
    from pandas import DataFrame

    from bfl.api.network import TrainedNetwork
    from bfl.data.datasets.encoding import Encoding

POSTERIORS = ("last", "latest")
"""Posteriors of a run that can be chosen."""

PREDICT = {"classification": "predict", "regression": "predict_numbers"}
"""Methods that predict, by the key ``task``."""


@dataclass(frozen=True)
class Result:
    """Results in a run's folder, read when they are needed; ``which`` posterior: see ``load``."""

    folder: Path
    which: str = "last"

    @property
    def configuration(self) -> dict[str, Any]:
        """The complete configuration: every key, kebab-case, with its value."""
        return self._files.config()

    @property
    def finished(self) -> bool:
        """True if the run has come to its end."""
        return self._files.holds(files.METRICS)

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the final evaluation, by name; a DataError while the run is not over."""
        return self._files.metrics()

    @property
    def baselines(self) -> dict[str, Any]:
        """Metrics of the ``federation`` and its baselines ``central`` and, by client, ``local``."""
        return self._files.read_json(files.BASELINES, {})

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """Records of the rounds, one dictionary each."""
        return self._files.rounds()

    @property
    def posterior(self) -> Posterior:
        """The posterior: vectors of means, variances and point parameters."""
        return self._posterior[0]

    @property
    def manifest(self) -> Manifest:
        """Positions of the network's parameters in the posterior's vectors."""
        return self._posterior[1]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of the images that the network takes."""
        return self._network.image_shape

    @property
    def class_names(self) -> tuple[str, ...]:
        """One name per class."""
        return self._network.class_names

    @property
    def task(self) -> str:
        """The key ``task``: what the run has predicted."""
        return self._network.task

    @property
    def encoding(self) -> Encoding | None:
        """The encoding of a table's columns; None: the run was made on images."""
        return self._network.encoding

    def predict(
        self, images: npt.ArrayLike | DataFrame, *, samples: int | None = None
    ) -> Predictions:
        """Return the predictions for images, by samples of the final posterior.

        For the run's test images they are those of its final evaluation, bit for bit on the same
        kind of machine with the same versions and number of threads.

        Args:
            images: (N, H, W, C), or (N, H, W) where C is 1: uint8, or floats of 0.0
                to 1.0. Of a run on a table, a data frame with its columns.
            samples: The number M of samples; by default as the run's final evaluation has it,
                which may be at the posterior's mean (``evaluate-at``).
        """
        network = self._network
        statistics = self._predicted("classification", images, samples)
        return Predictions(
            mean_probability=statistics.mean_probability,
            log_mean_probability=statistics.log_mean_probability,
            predicted=statistics.predicted,
            uncertainty=measure_all(statistics),
            samples=statistics.samples,
            class_names=network.class_names,
            sets=statistics.sets,
            familiarity=statistics.familiarity,
            warnings=self._warnings(images, statistics),
        )

    def predict_numbers(
        self, rows: npt.ArrayLike | DataFrame, *, samples: int | None = None
    ) -> Mixtures:
        """Return the predictive distributions of numbers for a data frame; see ``predict``."""
        found: Mixtures = self._predicted("regression", rows, samples)
        return replace(found, warnings=self._warnings(rows, found))

    def _warnings(
        self, given: npt.ArrayLike | DataFrame, predicted: Statistics | Mixtures
    ) -> tuple[tuple[str, ...], ...]:
        """Return what is unusual about each row or image."""
        encoding, unlike = self.encoding, np.zeros(predicted.examples, bool)
        if predicted.familiarity is not None and self._closed:
            unlike = predicted.familiarity < self._closed.threshold
        found = encoding.row_warnings(given) if encoding else [()] * predicted.examples
        return tuple(
            (*own, UNLIKE) if strange else own for own, strange in zip(found, unlike, strict=True)
        )

    def explain_unlike(self, familiarity: FloatArray, unit: str = "example") -> str:
        """Return how many are ``UNLIKE``, and whether by chance, in words; empty: unknown."""
        return self._closed.explain_unlike(familiarity, unit) if self._closed else ""

    def _predicted(self, task: str, images: npt.ArrayLike | DataFrame, samples: int | None) -> Any:
        if self.task != task:
            raise DataError(f"the run's task is '{self.task}': call {PREDICT[self.task]}")
        _checked_samples(samples)
        return self._statistics(self._inputs(images), samples)

    def evaluate(
        self,
        data: str | npt.ArrayLike | DataFrame,
        labels: npt.ArrayLike | None = None,
        *,
        foreign: str = "",
        corruptions: str = "none",
        data_dir: str | None = None,
        samples: int | None = None,
    ) -> dict[str, Any]:
        """Return how good predictions are for labelled examples.

        Args:
            data: A data set as in the key ``dataset``, with classes of the run's; images are
                resized. Of a folder or a table without a test part all examples are taken, unless
                the run was made on it or on a copy. Or images or rows as for ``predict``.
            labels: Of images or rows: classes (N,) by name or by number; numbers (N,).
                None: a data frame has them in its target column.
            foreign: Foreign images, as in the key ``ood-dataset``, to be told from these.
            corruptions: What these are corrupted by, as in the key ``corruptions``.
            data_dir: Where archives of named data sets lie; by default as in the run.
            samples: As for ``predict``.

        Returns:
            ``metrics``, as in ``metrics.json``; ``foreign`` and ``corruptions``, as in the files of
            these names (without what is of the time before a closing), empty where not asked for;
            ``data``, ``examples`` and ``samples``.
        """
        from bfl.api.evaluation import data_in_memory, evaluate_data, named_data

        network, settings = self._network, self.configuration
        where = str(settings.get("data-dir", "")) if data_dir is None else data_dir
        _checked_samples(samples)
        if isinstance(data, str):
            digests = self._files.read_json(files.DATA, {})
            dataset = named_data(network, settings, data, where, digests)
        else:
            dataset = data_in_memory(network, settings, self._inputs(data), data, labels)
        asked = {"foreign": foreign, "corruptions": corruptions, "data_dir": where}
        return evaluate_data(
            network, lambda x: self._statistics(x, samples), settings, dataset, **asked
        )

    def features(self, images: npt.ArrayLike | DataFrame) -> FloatArray:
        """Return the last layer's input (N, D) for images, with weights at the posterior's mean."""
        return self._trained.features(self._inputs(images))

    def keras_model(self) -> Any:
        """Return the network as a plain ``tf_keras`` model, its weights at the posterior's mean.

        It takes pixels (N, H, W, C) of 0 to 255 and gives probabilities (N, C). It has no
        uncertainty about its weights, which ``predict`` has. Dropout is off.
        """
        if self.task != "classification":
            raise DataError(
                f"the run's task is '{self.task}', and a Keras model gives probabilities of classes"
            )
        return self._trained.keras_model()

    def _inputs(self, given: npt.ArrayLike | DataFrame) -> npt.NDArray[Any]:
        if self.encoding:
            return self.encoding.encode(given)
        return checked_images(given, self._network.image_shape, self.configuration)

    def _statistics(self, inputs: npt.NDArray[Any], samples: int | None = None) -> Statistics:
        return self._trained.predict(inputs, samples, self._closed)

    @property
    def _trained(self) -> TrainedNetwork:
        from bfl.api.network import TrainedNetwork

        posterior, manifest = self._posterior
        return TrainedNetwork(self._network, manifest, posterior)

    @property
    def _files(self) -> files.RunFolder:
        return files.RunFolder(self.folder)

    @cached_property
    def _network(self) -> NetworkDescription:
        return network_description(self._files)

    @cached_property
    def _closed(self) -> Closed | None:
        if self.which != "last" or not self._files.holds(files.CLOSING):
            return None
        with self._files.reading_arrays(files.CLOSING) as arrays:
            return Closed.read(arrays)

    @cached_property
    def _posterior(self) -> tuple[Posterior, Manifest]:
        if self.which == "latest":
            from bfl.api.network import latest

            return latest(self._network, self._files)
        self._files.check_finished(files.POSTERIOR)
        return self._files.posterior()


def _checked_samples(samples: int | None) -> None:
    if samples is not None and (type(samples) is not int or samples < 1):
        raise ConfigurationError(f"samples is {samples!r}; allowed: a whole number, at least 1")


def load(folder: str | os.PathLike[str], posterior: str = "last", *, plugins: str = "") -> Result:
    """Return the results of a run from its folder, which may have been moved or copied here.

    Args:
        folder: The folder.
        posterior: Which one is meant: ``"last"``, or ``"latest"``, that of the last round so far,
            also of a run that was interrupted.
        plugins: The plugins that its network is from, which may run their code here, as in the key
            ``plugins``; without, only those that the user has named in this process.
    """
    if posterior not in POSTERIORS:
        raise ConfigurationError(unknown_name("posterior", posterior, POSTERIORS))
    load_plugins(plugins)
    path = files.RunFolder.at(given_path(folder, "folder")).path.absolute()
    over = posterior == "latest" and files.RunFolder(path).holds(files.POSTERIOR)
    return Result(path, "last" if over else posterior)
