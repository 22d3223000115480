"""Evaluation of a posterior on a test set, in a process of its own state: networks built once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bfl.aggregation.server import labelled_images
from bfl.closing import Closed
from bfl.configuration import Configuration
from bfl.data.datasets import Dataset
from bfl.data.datasets.foreign import foreign_images
from bfl.data.datasets.server_data import ServerData
from bfl.data.images import Images
from bfl.evaluation.metrics import evaluate
from bfl.evaluation.prediction.monte_carlo import Predictor
from bfl.evaluation.prediction.of_tasks import statistics_of
from bfl.evaluation.prediction.predictions import Predictions
from bfl.evaluation.uncertainty import mean_uncertainties
from bfl.experiments.results.best import VALIDATION
from bfl.learning.networks.network import build_network
from bfl.posteriors import Manifest, Posterior

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EvaluationNetwork:
    """A run's network, built to evaluate with: takes seconds, and knows nothing of clients."""

    initial: Posterior
    manifest: Manifest
    predictor: Predictor

    @classmethod
    def of(cls, configuration: Configuration, dataset: Dataset) -> EvaluationNetwork:
        """Return the network of a configuration for the images and classes of a data set."""
        network = build_network(
            configuration.architecture,
            configuration.inference,
            dataset.image_shape,
            dataset.num_classes,
        )
        division = configuration.shared.division(network.manifest)
        precision = configuration.keys.evaluate_precision
        return cls(
            initial=division.shared_of(network.initial_posterior(configuration.keys.seed)),
            manifest=division.shared,
            predictor=Predictor(
                network,
                configuration.architecture,
                precision,
                statistics=statistics_of(configuration.keys.task, dataset.target),
            ),
        )


class Evaluator:
    """Evaluator of posteriors of a run's network on the test set.

    Where clients keep heads of their own (``shared``), it has none and evaluates nothing: it knows
    what travels.

    Attributes:
        initial: The global posterior that the run begins with.
        foreign: Foreign images (``ood-dataset``).

    Args:
        network: Its network; by default it is built here.
        server_data: The server's own images, on which rounds are validated where they have labels;
            by default none.
    """

    def __init__(
        self,
        configuration: Configuration,
        dataset: Dataset,
        *,
        network: EvaluationNetwork | None = None,
        server_data: ServerData | None = None,
    ) -> None:
        built = network or EvaluationNetwork.of(configuration, dataset)
        self.configuration = configuration
        self.dataset = dataset
        self.server_data = server_data
        self.initial = built.initial
        self.manifest = built.manifest
        self.predictor = built.predictor
        keys = configuration.keys
        self.foreign = tuple(foreign_images(keys.ood_dataset, keys.data_dir, dataset))

    def predict(
        self,
        posterior: Posterior,
        *,
        samples: int,
        purpose: str | int,
        images: Images | None = None,
        closed: Closed | None = None,
    ) -> Predictions:
        """Return the predictions of M samples for the test set, or for other images.

        In a run that is evaluated at the posterior's mean (``evaluate-at``), M is 1.

        Args:
            samples: M.
            purpose: What keys the draws besides the seed: the round, or ``"final"``.
            images: Images (N, H, W, C) other than the test set's.
            closed: What the closing round has found of the posterior's network.
        """
        shown = self.dataset.test_images if images is None else images
        if closed:
            return closed.of_images(
                self.predictor,
                posterior,
                shown,
                samples=samples,
                seed=self.configuration.keys.seed,
                otherwise=lambda: self.predict(
                    posterior, samples=samples, purpose=purpose, images=shown
                ),
            )
        if self.configuration.keys.evaluate_at == "mean":
            return self.predictor.predict_at_mean(posterior, shown)
        return self.predictor.predict(
            posterior,
            shown,
            samples=samples,
            seed=self.configuration.keys.seed,
            labels=("evaluation", purpose),
        )

    def train_accuracy(self, posterior: Posterior, positions: Positions, epoch: int) -> float:
        """Return the accuracy on training images that are held out, after an epoch."""
        predictions = self.predict(
            posterior,
            samples=self.configuration.keys.pretrain_mc_samples,
            purpose=f"pretraining-{epoch}",
            images=self.dataset.train_images[positions],
        )
        return float(np.mean(predictions.predicted == self.dataset.train_labels[positions]))

    @property
    def validates(self) -> bool:
        """True if there are labelled images of the server's own."""
        return self.server_data is not None and self.server_data.labels is not None

    def validation_metrics(self, posterior: Posterior, server_round: int) -> dict[str, float]:
        """Return the ``metrics`` of the server's own images, as ``validation-NAME``.

        Raises:
            RunError: It has none, or no labels of them.
        """
        images, labels = labelled_images(self.server_data)
        predictions = self.predict(
            posterior,
            samples=self.configuration.keys.evaluate_mc_samples,
            purpose=f"validation-{server_round}",
            images=images,
        )
        found = self._evaluated(predictions, labels)
        return {f"{VALIDATION}{name}": value for name, value in found.items()}

    def metrics(self, posterior: Posterior, server_round: int) -> dict[str, float]:
        """Return metrics and mean uncertainties, by the configuration's ``evaluate-mc-samples``."""
        predictions = self.predict(
            posterior,
            samples=self.configuration.keys.evaluate_mc_samples,
            purpose=server_round,
        )
        return self._evaluated(predictions, self.dataset.tested_on)

    def _evaluated(self, predictions: Predictions, labels: npt.ArrayLike) -> dict[str, float]:
        settings = self.configuration.values
        return {
            **evaluate(predictions, labels, settings),
            **mean_uncertainties(predictions, settings),
        }
