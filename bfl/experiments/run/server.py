"""The server's own images and network, behind what ``bfl.aggregation.server`` asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.aggregation.ensemble import Member
from bfl.aggregation.server import DistillationTask, Distilled, Labels
from bfl.configuration import Configuration
from bfl.data.datasets import Dataset
from bfl.data.datasets.server_data import ServerData
from bfl.data.images import Images
from bfl.evaluation.evaluated_ensemble import MemberPredictions
from bfl.evaluation.prediction.monte_carlo import Predictor
from bfl.evaluation.prediction.predictions import Predictions
from bfl.learning.distillation import Distiller, distiller_for, statistics_pass
from bfl.learning.networks.network import build_network
from bfl.learning.optimizers import StochasticGradientDescent
from bfl.posteriors import Posterior


class NetworkServer:
    """A server with images and a network; teachers are vectors that one network takes in turn."""

    def __init__(
        self,
        configuration: Configuration,
        dataset: Dataset,
        data: ServerData | None,
        predictor: Predictor,
    ) -> None:
        self.data = data
        self.classes = dataset.num_classes
        self._configuration = configuration
        self._dataset = dataset
        self._predictor = predictor

    @property
    def seed(self) -> int:
        """The run's seed."""
        return self._configuration.keys.seed

    @property
    def images(self) -> Images:
        """The server's own images.

        Raises:
            ValueError: It has none.
        """
        if self.data is None:
            raise ValueError("the server has no images of its own")
        return self.data.images

    def predict(self, posterior: Posterior, *, labels: Labels) -> Predictions:
        """Return what a posterior predicts for the server's own images."""
        samples = self._configuration.keys.evaluate_mc_samples
        return self._predictor.predict(
            posterior, self.images, samples=samples, seed=self.seed, labels=labels
        )

    def logits_at_mean(self, posterior: Posterior) -> npt.NDArray[Any]:
        """Return the logits (N, C) of the model at a posterior's mean for the server's images."""
        return self._predictor.logits_at_mean(posterior, self.images)

    def predict_ensemble(
        self, members: Iterable[Member], *, labels: Labels, images: Any = None
    ) -> Predictions:
        """Return the mean predictions of members, one at a time in memory; see ``Server``."""
        together = MemberPredictions()
        for name, logits in self.member_logits(members, labels=labels, images=images):
            together.add(name, logits)
        return together.result()

    def member_logits(
        self, members: Iterable[Member], *, labels: Labels, images: Any = None
    ) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Yield the name of each member and its logits (N, C); see ``predict_ensemble``."""
        shown = self.images if images is None else images
        for member in members:
            keyed = (*labels, member.name)
            weights = self._weights(member, keyed)
            yield member.name, self._predictor.logits(*weights, shown, self.seed, keyed)

    def _weights(self, member: Member, labels: Labels) -> tuple[Any, Any]:
        """Return a member's values and points, with its statistics as it has them made."""
        if not member.recompute:
            return member.values, member.point
        network, manifest = self._predictor.network, self._predictor.manifest
        network.load_values(manifest, member.values, member.point)
        statistics_pass(network).recompute(self.images, self.seed, labels)
        return network.read_values(manifest)

    def distiller(self, task: DistillationTask) -> Distiller:
        """Return what trains the students of a task's plan."""
        configuration, plan = self._configuration, task.plan
        network = build_network(
            configuration.architecture,
            configuration.inference,
            self._dataset.image_shape,
            self.classes,
        )
        optimizer = StochasticGradientDescent(
            momentum=plan.momentum, weight_decay=plan.weight_decay
        )
        return distiller_for(
            network, plan.batch_size, configuration.student_augmentation, optimizer
        )

    def distil(self, task: DistillationTask) -> Distilled:
        """Train a student on the server's own images."""
        return self.distiller(task).distil(np.ascontiguousarray(self.images), task)
