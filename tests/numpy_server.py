"""A server with images and a network, without TensorFlow: softmax regression in NumPy."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bfl import randomness
from bfl.aggregation.ensemble import Member
from bfl.aggregation.samplers import join_values
from bfl.aggregation.server import DistillationTask, Distilled
from bfl.data.datasets.server_data import ServerData
from bfl.evaluation.evaluated_ensemble import MemberPredictions
from bfl.evaluation.prediction import Predictions
from bfl.evaluation.prediction.predictions import log_softmax
from bfl.posteriors import Posterior

IMAGES = 200


class NumpyServer:
    """Two classes; the logit of the second is the sum of features times all weights.

    Args:
        size: The number of Gaussian and point parameters together.
        images: The number of the server's images.
    """

    classes = 2

    def __init__(self, size: int, images: int = IMAGES) -> None:
        generator = np.random.default_rng(5)
        pixels = generator.integers(0, 256, (images, size, 1, 1)).astype(np.uint8)
        self.data = ServerData(pixels, generator.integers(0, 2, images), np.zeros(0, np.int64))
        self.tasks: list[DistillationTask] = []

    def _features(self, images: Any) -> Any:
        shown = self.data.images if images is None else images
        return shown.reshape(len(shown), -1) / 127.5 - 1.0

    def _logits(self, weights: Any, images: Any = None) -> Any:
        second = self._features(images) @ weights
        return np.stack([np.zeros_like(second), second], axis=1)

    def logits_at_mean(self, posterior: Posterior) -> Any:
        return self._logits(join_values(posterior))

    def member_logits(
        self, members: Iterable[Member], *, labels: Any, images: Any = None
    ) -> Iterator[tuple[str, Any]]:
        for member in members:
            yield member.name, self._logits(np.concatenate([member.values, member.point]), images)

    def predict_ensemble(self, members: Iterable[Member], *, labels: Any) -> Predictions:
        together = MemberPredictions()
        for name, logits in self.member_logits(members, labels=labels):
            together.add(name, logits)
        return together.result()

    def cross_entropy(self, weights: Any, targets: Any) -> float:
        return float(-(targets * log_softmax(self._logits(weights))).sum(axis=1).mean())

    def distil(self, task: DistillationTask) -> Distilled:
        """Go along the gradient of the plan's steps, on one batch each; average as it says."""
        self.tasks.append(task)
        weights, features = join_values(task.start).astype(np.float64), self._features(None)
        before = self.cross_entropy(weights, task.targets)
        generator = randomness.generator(task.seed, *task.labels)
        kept = []
        for rate, collected in zip(task.plan.rates, task.plan.collected, strict=True):
            batch = generator.integers(0, len(features), 8)
            second = np.exp(log_softmax(self._logits(weights)))[batch, 1]
            error = second - task.targets[batch, 1]
            weights = weights - 100 * float(rate) * (features[batch].T @ error) / 8
            if collected:
                kept.append(weights)
        student = np.mean(kept, axis=0) if kept else weights
        size, kind = task.start.size, np.float32
        posterior = Posterior(
            student[:size].astype(kind), task.start.variance, student[size:].astype(kind)
        )
        after = self.cross_entropy(student, task.targets)
        return Distilled(posterior, before, after, len(kept))
