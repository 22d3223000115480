"""Monte Carlo prediction: the mean over M draws of the weights (or of the dropout masks)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl import randomness
from bfl.evaluation.prediction.predictions import Predictions
from bfl.evaluation.prediction.statistics import PredictionStatistics
from bfl.keras import configured_threads, tf
from bfl.learning.networks.folding import FoldedModel
from bfl.learning.networks.keys import keyed
from bfl.learning.networks.network import Network, normalized_images
from bfl.learning.networks.parametrizations import SOFTPLUS, Parametrization
from bfl.posteriors import Manifest, Posterior

Images = npt.NDArray[np.uint8]

BATCHES_AT_ONCE = 2
"""Batches that are predicted side by side where TensorFlow has that many threads.

While one is at an operation too small to be split, the other keeps the remaining threads busy. The
bits do not depend on it.
"""


def drawn_values(
    posterior: Posterior,
    seed: int,
    labels: tuple[Any, ...],
    sample: int,
    parametrization: Parametrization = SOFTPLUS,
) -> npt.NDArray[Any]:
    """Return the values (D,) of the Gaussian parameters in one draw θ^m ~ q(θ).

    Args:
        posterior: q(θ).
        seed: The run's seed.
        labels: What keys the draws beside the seed.
        sample: m, from 0.
        parametrization: That of the network, which may compute with other variances.
    """
    normal = randomness.generator(seed, "weights", *labels, sample)
    noise = normal.standard_normal(posterior.size, np.float32)
    variance = parametrization.used_variance(posterior.variance)
    deviation = np.sqrt(variance, dtype=np.float32)
    return np.asarray(posterior.mean + deviation * noise)


class Predictor:
    """Predicts with a posterior by Monte Carlo: p̄ = 1/M Σ_m p(y | x, θ^m), θ^m ~ q(θ).

    Each θ^m is drawn once and used for the whole set of images, so a variational network predicts
    with plain convolutions, batch normalisation folded into them. The sums over m stream: memory
    does not grow with M.

    Source: Fischer et al. (2024), Eq. 7.

    Args:
        manifest: The parameters of the network whose posteriors are given.
        network: The network of points that predicts (``build_predictor``).
        batch_size: Images in one forward pass.
        parametrization: That of the network whose posteriors are given.
    """

    def __init__(
        self,
        manifest: Manifest,
        network: Network,
        batch_size: int = 128,
        parametrization: Parametrization = SOFTPLUS,
    ) -> None:
        self.manifest = manifest
        self.network = network
        self.batch_size = batch_size
        self.parametrization = parametrization
        self.traces = 0
        self._folded = FoldedModel(network.model)
        self._forward = tf.function(
            self._logits,
            input_signature=[
                tf.TensorSpec([None, *network.image_shape], tf.uint8),
                tf.TensorSpec([2], tf.int32),
            ],
            autograph=False,
        )

    def predict(
        self,
        posterior: Posterior,
        images: Images,
        *,
        samples: int,
        seed: int,
        labels: tuple[Any, ...],
    ) -> Predictions:
        """Return the predictions of M draws for images (N, H, W, C).

        A network whose predictions do not vary (point weights, no dropout) predicts once.

        Args:
            posterior: q(θ).
            images: uint8 images.
            samples: M.
            seed: The run's seed.
            labels: What keys the draws beside the seed, for instance ``("evaluate", round)``.
        """
        varies = self.network.inference.stochastic_prediction or posterior.size > 0
        statistics = PredictionStatistics()
        for sample in range(samples if varies else 1):
            values = drawn_values(posterior, seed, labels, sample, self.parametrization)
            drawn = self.logits(values, posterior.point, images, seed, (*labels, sample))
            statistics.add_logits(drawn)
        return statistics.result()

    def logits(
        self,
        values: npt.NDArray[Any],
        point: npt.NDArray[Any],
        images: Images,
        seed: int,
        labels: tuple[Any, ...],
    ) -> npt.NDArray[Any]:
        """Return the logits (N, C) of one model for images (N, H, W, C).

        Args:
            values: (D,) values of the Gaussian parameters.
            point: (P,) values of the point parameters.
            images: uint8 images.
            seed: The run's seed.
            labels: What keys dropout masks beside the seed.
        """
        self.network.load_values(self.manifest, values, point)
        self._folded.update()
        # Dropout masks differ between batches: the batch's start is part of their key.
        keys = [
            randomness.key(seed, "masks", *labels, start)
            for start in range(0, len(images), self.batch_size)
        ]
        return self._all_logits(images, keys)

    def _all_logits(
        self, images: Images, keys: Sequence[npt.NDArray[np.int32]]
    ) -> npt.NDArray[Any]:
        def logits(number: int) -> npt.NDArray[Any]:
            start = number * self.batch_size
            batch = tf.constant(images[start : start + self.batch_size])
            result: npt.NDArray[Any] = self._forward(batch, tf.constant(keys[number])).numpy()
            return result

        at_once = min(BATCHES_AT_ONCE, configured_threads() or 1)
        with ThreadPoolExecutor(at_once) as pool:
            parts = list(pool.map(logits, range(len(keys))))
        return np.concatenate(parts)

    def _logits(self, images: Any, key: Any) -> Any:
        self.traces += 1
        with keyed(key):
            logits = self._folded.model(normalized_images(images), training=False)
        return tf.cast(logits, tf.float32)
