"""Monte Carlo prediction: the mean over M draws of the weights (or of the dropout masks)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl import randomness
from bfl.data.images import Images
from bfl.evaluation.prediction.forward import ForwardPass
from bfl.evaluation.prediction.predictions import Predictions, PredictionStatistics
from bfl.learning.models.base import Architecture
from bfl.learning.networks.network import Network, build_predictor
from bfl.learning.networks.parametrizations import Parametrization
from bfl.posteriors import Posterior


def drawn_values(
    posterior: Posterior,
    seed: int,
    labels: tuple[Any, ...],
    sample: int,
    parametrization: Parametrization,
) -> npt.NDArray[Any]:
    """Return the values (D,) of the Gaussian parameters in one draw θ^m ~ q(θ)."""
    normal = randomness.generator(seed, "weights", *labels, sample)
    noise = normal.standard_normal(posterior.size, np.float32)
    variance = parametrization.used_variance(posterior.variance)
    deviation = np.sqrt(variance, dtype=np.float32)
    return np.asarray(posterior.mean + deviation * noise)


class Predictor:
    """Predicts with a posterior by Monte Carlo: p̄ = 1/M Σ_m p(y | x, θ^m), θ^m ~ q(θ).

    Each θ^m is drawn once and used for the whole set of images, so a variational network predicts
    with plain convolutions, batch normalisation folded into them. The sums over m stream: memory
    does not grow with M. At its mean a posterior predicts as a network of points: nothing is drawn,
    and dropout is off.

    Source: Fischer et al. (2024), Eq. 7.

    Args:
        of: The network whose posteriors are given; what it computes with variances is what draws
            have.
        role: What tells the networks that predict from others alike, see ``build_network``.
        statistics: Makes what sums up the samples, by what the network predicts.
    """

    def __init__(
        self,
        of: Network,
        architecture: Architecture,
        *,
        role: str = "",
        batch_size: int = 128,
        statistics: Callable[[], Any] = PredictionStatistics,
    ) -> None:
        self.statistics = statistics
        self.manifest = of.manifest
        self.network = build_predictor(of, architecture, role=role)
        self._of = of
        self._architecture, self._role = architecture, role
        self._batch_size = batch_size

    @property
    def traces(self) -> int:
        """Number of times that the prediction with draws has been traced."""
        return self._drawn.traces

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

        A network whose predictions do not vary (point weights, no dropout) predicts once. The draws
        are keyed by the seed and by labels, for instance ``("evaluate", round)``.
        """
        varies = self.network.inference.stochastic_prediction or posterior.size > 0
        parametrization = self._of.inference.parametrization
        statistics = self.statistics()
        for sample in range(samples if varies else 1):
            values = drawn_values(posterior, seed, labels, sample, parametrization)
            drawn = self.logits(values, posterior.point, images, seed, (*labels, sample))
            statistics.add_logits(drawn)
        found: Predictions = statistics.result()
        return found

    def predict_at_mean(self, posterior: Posterior, images: Images) -> Predictions:
        """Return the predictions of the one model at q(θ)'s mean for images (N, H, W, C)."""
        statistics = self.statistics()
        statistics.add_logits(self.logits_at_mean(posterior, images))
        found: Predictions = statistics.result()
        return found

    def logits_at_mean(self, posterior: Posterior, images: Images) -> npt.NDArray[Any]:
        """Return the logits (N, C) of the one model at q(θ)'s mean for images (N, H, W, C)."""
        return self._at_mean.logits(posterior.mean, posterior.point, images, 0, ())

    def features_at_mean(
        self, posterior: Posterior, images: Images, *, stages: bool = False
    ) -> npt.NDArray[Any]:
        """Return what the last layer takes (N, F) at q(θ)'s mean for images (N, H, W, C).

        With ``stages``, the means over pixels of what the manifest's stages take come behind them.
        """
        features = self._features_of_stages if stages else self._features
        return features.logits(posterior.mean, posterior.point, images, 0, ())

    def logits(
        self,
        values: npt.NDArray[Any],
        point: npt.NDArray[Any],
        images: Images,
        seed: int,
        labels: tuple[Any, ...],
    ) -> npt.NDArray[Any]:
        """Return the logits (N, C) of one draw, under one dropout mask an image if there are any.

        The arguments are those of ``ForwardPass.logits``.
        """
        return self._drawn.logits(values, point, images, seed, labels)

    @cached_property
    def _drawn(self) -> ForwardPass:
        return ForwardPass(self.manifest, self.network, self._batch_size)

    @cached_property
    def _at_mean(self) -> ForwardPass:
        """Forward pass without any draw: the same where a draw of the weights is all there is."""
        if not self.network.inference.stochastic_prediction:
            return self._drawn
        points = build_predictor(self._of, self._architecture, role=self._role, drawn=False)
        return ForwardPass(self.manifest, points, self._batch_size)

    @cached_property
    def _features(self) -> ForwardPass:
        """Forward pass that ends before the last layer."""
        return self._before_head(())

    @cached_property
    def _features_of_stages(self) -> ForwardPass:
        return self._before_head(self.manifest.stages)

    def _before_head(self, stages: Iterable[str]) -> ForwardPass:
        points = build_predictor(self._of, self._architecture, role=self._role, drawn=False)
        return ForwardPass(self.manifest, points, self._batch_size, features=True, stages=stages)
