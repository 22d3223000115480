"""Evaluation of posteriors on a test set, and the server of ``bfl.aggregation.server``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.aggregation.ensemble import Member
from bfl.aggregation.server import DistillationTask, Distilled, Labels, labelled_images
from bfl.closing import Closed
from bfl.configuration import Configuration
from bfl.data.datasets import Dataset
from bfl.data.datasets.foreign import foreign_images
from bfl.data.datasets.server_data import ServerData
from bfl.data.images import Images
from bfl.evaluation.evaluated_ensemble import MemberPredictions
from bfl.evaluation.metrics import evaluate
from bfl.evaluation.prediction.monte_carlo import Predictor
from bfl.evaluation.prediction.predictions import Predictions
from bfl.evaluation.uncertainty import mean_uncertainties
from bfl.experiments.results.table import VALIDATION
from bfl.experiments.run.network import statistics_of
from bfl.learning.distillation import Distiller, distiller_for
from bfl.learning.networks.network import build_network
from bfl.learning.optimizers import StochasticGradientDescent
from bfl.posteriors import Manifest, Posterior

Positions = npt.NDArray[np.int64]

PRETRAINING_SAMPLES = 20
"""Monte Carlo samples that validate an epoch of pre-training: fewer end it by noise."""


@dataclass(frozen=True)
class EvaluationNetwork:
    """A run's network for evaluation, which takes seconds to build."""

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
        return cls(
            initial=division.shared_of(network.initial_posterior(configuration.keys.seed)),
            manifest=division.shared,
            predictor=Predictor(
                network, configuration.architecture, statistics=statistics_of(dataset.target)
            ),
        )


class Evaluator:
    """Evaluator of posteriors on the test set, and on the server's own images if they have labels.

    If clients keep personal heads, it has the shared parameters only, and does not evaluate.
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
        self.configuration, self.dataset, self.server_data = configuration, dataset, server_data
        self.initial, self.manifest = built.initial, built.manifest
        self.predictor = built.predictor
        keys = configuration.keys
        self.foreign = tuple(foreign_images(keys.ood_dataset, keys.data_dir, dataset, keys.reading))
        self.server = NetworkServer(configuration, dataset, server_data, self.predictor)

    def predict(
        self,
        posterior: Posterior,
        *,
        samples: int,
        purpose: str | int,
        images: Images | None = None,
        closed: Closed | None = None,
    ) -> Predictions:
        """Return the predictions of some samples for the test set, or for ``images`` (N, H, W, C).

        If the run evaluates at the posterior's mean (``evaluate-at``), there is one sample. The
        round, or ``"final"``, is the ``purpose``, which keys the draws besides the seed.
        """
        shown = self.dataset.test_images if images is None else images
        if closed:
            return closed.predict_images(
                self.predictor,
                posterior,
                shown,
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
        """Return the accuracy on held-out training images after an epoch."""
        predictions = self.predict(
            posterior,
            samples=PRETRAINING_SAMPLES,
            purpose=f"pretraining-{epoch}",
            images=self.dataset.train_images[positions],
        )
        return float(np.mean(predictions.predicted == self.dataset.train_labels[positions]))

    @property
    def validates(self) -> bool:
        """True if the server has labelled images."""
        return self.server_data is not None and self.server_data.labels is not None

    def validation_metrics(
        self, posterior: Posterior, server_round: int | str, closed: Closed | None = None
    ) -> dict[str, float]:
        """Return the ``metrics`` on the server's own images, as ``validation-NAME``."""
        images, labels = labelled_images(self.server_data)
        purpose = f"validation-{server_round}"
        found = self._measure(posterior, purpose, labels, images=images, closed=closed)
        return {f"{VALIDATION}{name}": value for name, value in found.items()}

    def metrics(self, posterior: Posterior, server_round: int) -> dict[str, float]:
        """Return metrics and mean uncertainties with ``evaluate-mc-samples`` samples."""
        return self._measure(posterior, server_round, self.dataset.tested_on)

    def _measure(
        self, posterior: Posterior, purpose: str | int, labels: npt.ArrayLike, **shown: Any
    ) -> dict[str, float]:
        settings, samples = self.configuration.values, self.configuration.keys.evaluate_mc_samples
        found = self.predict(posterior, samples=samples, purpose=purpose, **shown)
        return {**evaluate(found, labels, settings), **mean_uncertainties(found, settings)}


@dataclass(frozen=True)
class NetworkServer:
    """A server with images and one network, which takes the vectors of all teachers in turn."""

    configuration: Configuration
    dataset: Dataset
    data: ServerData | None
    predictor: Predictor

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.dataset.num_classes

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self.configuration.keys.seed

    @property
    def images(self) -> Images:
        """The server's own images; ValueError where it has none."""
        if self.data is None:
            raise ValueError("the server has no images of its own")
        return self.data.images

    def logits_at_mean(self, posterior: Posterior) -> npt.NDArray[Any]:
        """Return the logits (N, C) for the server's images at a posterior's mean."""
        return self.predictor.logits_at_mean(posterior, self.images)

    def predict_ensemble(self, members: Iterable[Member], *, labels: Labels) -> Predictions:
        """Return the mean predictions of members, one at a time in memory; see ``Server``."""
        together = MemberPredictions()
        for name, logits in self.member_logits(members, labels=labels):
            together.add(name, logits)
        return together.result()

    def member_logits(
        self, members: Iterable[Member], *, labels: Labels, images: Any = None
    ) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Yield the name of each member and its logits (N, C); see ``predict_ensemble``."""
        shown = self.images if images is None else images
        for member in members:
            drawn = member.values, member.point
            keyed = (*labels, member.name)
            yield member.name, self.predictor.logits(*drawn, shown, self.seed, keyed)

    def distiller(self, task: DistillationTask) -> Distiller:
        """Return the trainer of a task's students."""
        configuration, plan, shape = self.configuration, task.plan, self.dataset.image_shape
        architecture, inference = configuration.architecture, configuration.inference
        network = build_network(architecture, inference, shape, self.classes)
        optimizer = StochasticGradientDescent(momentum=0.9, weight_decay=plan.weight_decay)
        return distiller_for(
            network, plan.batch_size, configuration.student_augmentation, optimizer
        )

    def distil(self, task: DistillationTask) -> Distilled:
        """Train a student on the server's own images."""
        return self.distiller(task).distil(np.ascontiguousarray(self.images), task)
