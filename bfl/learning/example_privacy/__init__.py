"""Protections of single examples in local training; see docs/privacy.md."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from bfl.federation.privacy import (
    EXAMPLE_EPSILON,
    NO_BUDGET,
    Array,
    Mechanism,
    Normals,
    sampled_gaussian_epsilon,
    sampled_noise_multiplier_for,
)
from bfl.registry import Component, Registry

INSIDE = 1.0 - 2.0**-40
"""Factor that keeps rounding from leading out of the bound, in float64."""


class ExamplePrivacy(Component):
    """Protection of single examples in a client's local training."""

    @property
    def active(self) -> bool:
        """True if training is any other than without it."""
        return False

    @property
    def private(self) -> bool:
        """True if no number that a client has measured may leave it besides its update."""
        return False

    def mechanism(self) -> Mechanism | None:
        """Return what an account uses; None: no ε."""
        return None


class PrivateGradients(ExamplePrivacy, ABC):
    """Steps along noised sums of single examples' gradients, on batches drawn in secret.

    A step takes each of a client's N examples with probability q by itself (Poisson sampling), so
    that batches have any size, also 0, and q N on average. It goes along

        (Σ_n f(‖g_n‖) g_n + N(0, (z C)²)) / (q N) + ∇R / N,

    with g_n the gradient of what the objective sums over examples, by all trained variables
    together, f(‖g‖) ‖g‖ ≤ C, and R what it has besides the examples, such as KL[q ‖ p]: R looks at
    no data, and takes neither bound nor noise. An epoch has as many steps as visit each example
    once on average, 1/q to the nearest.

    What g_n draws at random (weights, dropout, augmentation) is keyed by the example and not by its
    place in the batch: so for every such draw one example changes the sum by at most C.
    """

    example_clip_norm: float = Field(1.0, ge=0.0, le=1e6)
    """greatest L2 norm C of an example's gradient; 0: no bound"""
    example_noise_multiplier: float = Field(1.0, ge=0.0, le=1e6)
    """standard deviation z of the noise on a step's sum of examples' gradients in units of
    example-clip-norm; 0: no noise"""
    example_sampling_rate: float = Field(0.1, gt=0.0, le=1.0)
    """probability q with which a private step takes each example of the client; an epoch has 1/q
    steps, and batch-size is not read"""
    example_delta: float = Field(1e-5, gt=0.0, lt=1.0)
    """δ of the ε of examples that each round's record has"""
    example_epsilon_budget: float = Field(NO_BUDGET, gt=0.0, le=NO_BUDGET)
    """the run ends before a round that would lead to a greater ε of examples"""

    @property
    def active(self) -> bool:
        """True if there is a bound or noise."""
        return self.example_clip_norm > 0.0 or self.private

    @property
    def private(self) -> bool:
        """True if there is noise."""
        return self.example_noise_multiplier > 0.0

    def has(self) -> frozenset[str]:
        """Return that no example's gradient is longer than a bound, and what stays unsaid."""
        bounded = {"bounded-gradients"} if self.example_clip_norm else set()
        return frozenset(bounded | ({"secret-measurements"} if self.private else set()))

    def requires(self) -> frozenset[str]:
        """Return what ε rests on."""
        # A client that is asked again in a round would release another update of that round.
        return frozenset({"bounded-gradients", "asked-once"}) if self.private else frozenset()

    def excludes(self) -> frozenset[str]:
        """Return what sees examples otherwise than one by one, or tells of them without noise."""
        if not self.active:
            return frozenset()
        # A personal model teaches the global one's copy what it has learned of other examples.
        together = {"moving-statistics", "personal-models", "repeated-examples"}
        together |= {"separate-gradients", "fitted-variances"}
        told = {"sent-beside", "evaluated-by-clients", "pre-training"} if self.private else set()
        return frozenset(together | told)

    @abstractmethod
    def factor(self, norm: Any) -> Any:
        """Return what a gradient of norm ‖g‖, a float64 tensor, is multiplied by: at most C/‖g‖."""

    def scale(self, norm: Any) -> Any:
        """Return ``factor``, held to the bound; 0 where a gradient is not finite."""
        from bfl.keras import tf

        # Not beyond it, whatever a factor says.
        bound = self.example_clip_norm * INSIDE / norm
        held = tf.clip_by_value(self.factor(norm), -bound, bound)
        finite = tf.math.is_finite(norm) & tf.math.is_finite(held)
        return tf.where(finite, held, tf.zeros_like(norm))

    def batch(self, examples: int, draws: Normals) -> npt.NDArray[np.int32]:
        """Return which of a client's examples a step takes, (B,) of 0 to N − 1, sorted."""
        taken = draws.random(examples) < self.example_sampling_rate
        return np.flatnonzero(taken).astype(np.int32)

    def noise(self, size: int, draws: Normals) -> Array:
        """Return the noise of a step's sum, float64 (size,)."""
        if not self.private:
            return np.zeros(size)
        deviation = self.example_noise_multiplier * self.example_clip_norm
        return deviation * draws.standard_normal(size)

    def steps(self, epochs: int) -> int:
        """Return how many steps so many epochs have."""
        return epochs * max(1, round(1.0 / self.example_sampling_rate))

    def mechanism(self) -> Mechanism | None:
        """Return what an account computes with: each step is a release; None without noise."""
        if not self.private:
            return None
        rate, delta = self.example_sampling_rate, self.example_delta
        return Mechanism(
            metric=EXAMPLE_EPSILON,
            multiplier_key="example-noise-multiplier",
            multiplier=self.example_noise_multiplier,
            budget_key="example-epsilon-budget",
            budget=self.example_epsilon_budget,
            delta=delta,
            releases=self.steps,
            epsilon=lambda releases: sampled_gaussian_epsilon(
                self.example_noise_multiplier, rate, releases, delta
            ),
            multiplier_for=lambda epsilon, releases: sampled_noise_multiplier_for(
                epsilon, rate, releases, delta
            ),
        )


example_privacies: Registry[ExamplePrivacy] = Registry(
    "example-privacy", "bfl.learning.example_privacy"
)


@example_privacies.register("none")
class NoExamplePrivacy(ExamplePrivacy):
    """Training as it is, on shuffled batches."""


@example_privacies.register("differentially-private-sgd", aliases=("dp-sgd",))
class DifferentiallyPrivateSgd(PrivateGradients):
    """Each example's gradient g becomes g min(1, C / ‖g‖), and their sum gets N(0, (z C)²).

    What the optimizer makes of it, momentum and Adam included, is no further release.

    Source: Abadi et al. (2016), "Deep learning with differential privacy", Algorithm 1, whose lots
    are drawn as here, over the expected size of a batch.
    """

    def factor(self, norm: Any) -> Any:
        """Return min(1, C / ‖g‖)."""
        from bfl.keras import tf

        return self.example_clip_norm / tf.maximum(norm, self.example_clip_norm)
