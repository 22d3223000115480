"""Likelihoods whose posterior is known: linear in closed form, classifiers by central sampling.

Weights θ (d,) have the prior N(0, I). S data sets of one design are computed side by side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from bfl.posteriors import Posterior

Array = npt.NDArray[np.float64]

PRIOR_PRECISION = 1.0
SIZES = (8, 12, 16, 24, 40)
"""The clients' numbers of examples."""

SCALES = np.array([0.1, 0.2, 0.4, 0.8])
"""Mean squares of the features: how much an example says of each weight."""

CLASSES = 4
"""Classes of the logistic regression; with two, curvatures by blocks are exact by chance."""

CHAINS = 8
MOST_R_HAT, LEAST_SIZE = 1.01, 1000
"""Data sets are left out whose draws have a larger R-hat, or a smaller effective size."""

TREE_DEPTH = 6
NEWTON_STEPS, TOLERANCE = 50, 1e-10


@dataclass(frozen=True)
class Gaussian:
    """Gaussian posteriors of S data sets.

    Attributes:
        mean: (S, d) means.
        covariance: (S, d, d) covariances.
    """

    mean: Array
    covariance: Array

    @classmethod
    def of(cls, posterior: Posterior, shape: tuple[int, int]) -> Gaussian:
        """Return a diagonal posterior of S · d parameters as that of S data sets."""
        variance = posterior.variance.astype(np.float64).reshape(shape)
        mean = posterior.mean.astype(np.float64).reshape(shape)
        return cls(mean, variance[:, :, None] * np.eye(shape[1]))

    @classmethod
    def fitted(cls, draws: Array) -> Gaussian:
        """Return the Gaussians with the moments of draws (M, S, d)."""
        away = draws - draws.mean(axis=0)
        covariance = np.einsum("msi,msj->sij", away, away, optimize=True) / (len(draws) - 1)
        return cls(draws.mean(axis=0), covariance)

    @property
    def variance(self) -> Array:
        """The marginal variances (S, d)."""
        return np.asarray(np.diagonal(self.covariance, axis1=1, axis2=2))

    def draws(self, number: int, generator: np.random.Generator) -> Array:
        """Return draws (``number``, S, d); a covariance may have zeros on its diagonal."""
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        normal = generator.standard_normal((number, *self.mean.shape))
        return np.asarray(self.mean + np.einsum("sij,msj->msi", root, normal))


@dataclass(frozen=True)
class Likelihood(ABC):
    """A client's data: N examples of one design, with targets of S data sets.

    Attributes:
        features: (N, d).
        targets: (S, N).
    """

    features: Array
    targets: Array

    newton_share: ClassVar[float] = 1.0
    """Share of a Newton step that is made."""

    @property
    def start(self) -> Array:
        """Weights (S, d) at which fits begin."""
        return np.zeros(self.shape)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers S and d."""
        return len(self.targets), self.features.shape[1]

    @abstractmethod
    def derivatives(self, weights: Array) -> tuple[Array, Array]:
        """Return the gradient (S, d) and negative Hessian (S, d, d) at weights (S, d)."""

    def posterior(self, weighted_mean: Array, precision: Array) -> tuple[Array, Array]:
        """Return the mode (S, d) and the precision matrix (S, d, d) there, by Newton's method.

        Of a linear regression they are the posterior itself, otherwise Laplace's approximation.

        Args:
            weighted_mean: η (S, d) of the prior exp(ηᵀθ − θᵀ diag(Λ) θ / 2).
            precision: Λ (S, d), of any sign where the posterior stays a density.
        """
        at = self.start
        prior = precision[:, :, None] * np.eye(at.shape[1])
        for _ in range(NEWTON_STEPS):
            slope, curvature = self.derivatives(at)
            slope = slope + weighted_mean - precision * at
            step = np.linalg.solve(curvature + prior, slope[:, :, None])[:, :, 0]
            at = at + self.newton_share * step
            if np.abs(step).max() < TOLERANCE:
                break
        return at, self.derivatives(at)[1] + prior

    def mean_field(self, weighted_mean: Array, precision: Array) -> Posterior:
        """Return the diagonal Gaussian with the least KL[q ‖ posterior], of S · d parameters.

        Its variances are 1 over the diagonal of the precision matrix. See ``posterior``.
        """
        mode, found = self.posterior(weighted_mean, precision)
        return Posterior(mode.ravel(), 1.0 / np.diagonal(found, axis1=1, axis2=2).ravel())

    def ivon(
        self,
        mean: Array,
        precision: Array,
        examples: int,
        prior: tuple[Array, Array],
        rates: Iterable[float],
        generator: np.random.Generator,
        decay: float = 0.998,
    ) -> tuple[Array, Array]:
        """Return mean and precision (S, d) after IVON's steps on the mean loss; a batch is all.

        Args:
            mean: (S, d) where the steps begin.
            precision: (S, d) over ``examples``.
            examples: How many examples the data count as.
            prior: Its weighted mean and precision (S, d), over ``examples``.
            rates: The share of a Newton step that each step makes.
            generator: Of the draws.
            decay: β₂, of the precision.

        Source: Shen et al. (2024), Algorithm 1; see ``bfl.learning.optimizers.ivon``.
        """
        momentum, share = np.zeros_like(mean), 1.0 - decay
        for step, rate in enumerate(rates, start=1):
            away = generator.standard_normal(mean.shape) / np.sqrt(examples * precision)
            gradient = -self.derivatives(mean + away)[0] / len(self.features)
            change = gradient * away * examples * precision + prior[1] - precision
            momentum = 0.9 * momentum + 0.1 * gradient
            precision = precision + share * change + (share * change) ** 2 / (2.0 * precision)
            along = momentum / (1.0 - 0.9**step) + prior[1] * mean - prior[0]
            mean = mean - rate * along / precision
        return mean, precision

    def exact(self) -> Gaussian:
        """Return ``posterior`` under the prior N(0, I) with its whole covariance."""
        nothing = np.zeros(self.shape)
        mode, precision = self.posterior(nothing, nothing + PRIOR_PRECISION)
        return Gaussian(mode, np.asarray(np.linalg.inv(precision), np.float64))


class Linear(Likelihood):
    """y = θᵀx + noise of variance 1: the conjugate model."""

    def derivatives(self, weights: Array) -> tuple[Array, Array]:
        """Return Xᵀ(y − Xθ) and XᵀX."""
        gram = self.features.T @ self.features
        residual = self.targets - weights @ self.features.T
        return residual @ self.features, np.broadcast_to(gram, (len(weights), *gram.shape))


class Classifier(Likelihood):
    """Classes 0 to C − 1, as logits that weights and features give; the last layer has a bias."""

    @abstractmethod
    def logits(self, weights: Any, features: Array, xp: Any = np) -> Any:
        """Return the logits (..., S, N, C) of features by weights (..., S, d).

        Args:
            weights: Arrays of NumPy, or tensors.
            features: (N, inputs).
            xp: NumPy, or TensorFlow's module of that interface.
        """

    def residuals(self, weights: Array) -> tuple[Array, Array]:
        """Return y − p, with y one-hot, and p, each (S, N, C)."""
        logits = self.logits(weights, self.features)
        p = np.asarray(softmax(logits, axis=-1))
        return np.eye(p.shape[-1])[self.targets.astype(np.int64)] - p, p


class Logistic(Classifier):
    """Logits Wx of ``CLASSES`` classes, with weights θ = W by rows; the last input is the bias."""

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers S and d."""
        return len(self.targets), CLASSES * self.features.shape[1]

    def logits(self, weights: Any, features: Array, xp: Any = np) -> Any:
        """Return Wx."""
        by_class = xp.reshape(weights, (*weights.shape[:-1], CLASSES, features.shape[1]))
        return xp.einsum("...scf,nf->...snc", by_class, features)

    def derivatives(self, weights: Array) -> tuple[Array, Array]:
        """Return Σ (y − p) xᵀ and Σ (diag(p) − p pᵀ) ⊗ x xᵀ."""
        residual, p = self.residuals(weights)
        x = self.features
        spread = p[..., None] * (np.eye(CLASSES) - p[..., None, :])
        gradient = np.einsum("snc,nf->scf", residual, x).reshape(self.shape)
        curvature = np.einsum("sncd,nf,ng->scfdg", spread, x, x, optimize=True)
        return gradient, curvature.reshape(*self.shape, self.shape[1])


def joined(clients: Sequence[Likelihood]) -> Likelihood:
    """Return the likelihood of all clients' data in one place."""
    features = np.concatenate([each.features for each in clients])
    return type(clients[0])(features, np.concatenate([each.targets for each in clients], axis=1))


@dataclass(frozen=True)
class Simulated:
    """Data sets with the weights that they were drawn with.

    Attributes:
        clients: A likelihood each.
        weights: (S, d) draws of the prior.
    """

    clients: tuple[Likelihood, ...]
    weights: Array


def linear(data_sets: int, generator: np.random.Generator, *, correlated: bool) -> Simulated:
    """Return linear regressions with orthogonal features at every client, or correlated ones (0.7).

    With orthogonal ones all posteriors are diagonal, so that a diagonal Gaussian can be exact.
    """
    weights = generator.standard_normal((data_sets, SCALES.size)) / np.sqrt(PRIOR_PRECISION)
    clients = []
    for size in SIZES:
        if correlated:
            features = _correlated(size, SCALES.size, 0.7, generator) * np.sqrt(SCALES)
        else:
            columns, _ = np.linalg.qr(generator.standard_normal((size, SCALES.size)))
            features = columns * np.sqrt(size * SCALES)
        noise = generator.standard_normal((data_sets, size))
        clients.append(Linear(features, weights @ features.T + noise))
    return Simulated(tuple(clients), weights)


def logistic(data_sets: int, generator: np.random.Generator) -> Simulated:
    """Return logistic regressions with three features of correlation 0.3, and a bias."""
    weights = generator.standard_normal((data_sets, 4 * CLASSES)) / np.sqrt(PRIOR_PRECISION)
    clients = []
    for size in SIZES:
        empty = Logistic(logistic_features(size, generator), np.zeros((data_sets, 0)))
        clients.append(with_drawn_labels(empty, weights, generator))
    return Simulated(tuple(clients), weights)


def with_drawn_labels(
    empty: Classifier, weights: Array, generator: np.random.Generator
) -> Classifier:
    """Return a classifier whose labels (S, N) are drawn by its logits, as floats."""
    logits = empty.logits(weights, empty.features)
    labels = (logits + generator.gumbel(size=logits.shape)).argmax(axis=-1)
    return replace(empty, targets=labels.astype(np.float64))


def logistic_features(size: int, generator: np.random.Generator) -> Array:
    """Return features (N, 4) of the logistic regression, with a 1 behind for the bias."""
    return np.concatenate([_correlated(size, 3, 0.3, generator), np.ones((size, 1))], axis=1)


def _correlated(
    size: int, features: int, correlation: float, generator: np.random.Generator
) -> Array:
    """Return features (N, d) of variance 1, any two of them correlated alike."""
    common = generator.standard_normal((size, 1))
    own = generator.standard_normal((size, features))
    return np.asarray(np.sqrt(correlation) * common + np.sqrt(1.0 - correlation) * own)


def sampled(likelihood: Classifier, draws: int, seed: int) -> Array:
    """Return draws (``draws``, ``CHAINS``, S, d) of posteriors by Hamiltonian Monte Carlo.

    Chains begin at draws of the prior, and choose the length of their trajectories (no U-turn).
    """
    from bfl.experiments.results.environment import available_cpus
    from bfl.keras import configure, tf, tfp

    configure(available_cpus())
    labels = tf.constant(likelihood.targets.astype(np.int64))
    numpy = tf.experimental.numpy

    def log_density(weights: object) -> object:
        logits = likelihood.logits(weights, likelihood.features, numpy)
        chosen = tf.one_hot(labels, logits.shape[-1], dtype=tf.float64)
        fit = tf.reduce_sum(chosen * tf.nn.log_softmax(logits), axis=(-2, -1))
        return fit - PRIOR_PRECISION / 2 * tf.reduce_sum(tf.square(weights), axis=-1)

    kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
        tfp.mcmc.NoUTurnSampler(log_density, step_size=np.float64(0.1), max_tree_depth=TREE_DEPTH),
        num_adaptation_steps=400,
    )
    start = np.random.default_rng(seed).standard_normal((CHAINS, *likelihood.shape))

    def run() -> object:
        return tfp.mcmc.sample_chain(
            draws,
            tf.constant(start),
            kernel=kernel,
            num_burnin_steps=500,
            trace_fn=lambda *_: (),
            seed=(seed, 0),
        ).all_states

    return np.asarray(tf.function(run, autograph=False)())


def convergence(values: Array) -> tuple[Array, Array]:
    """Return the largest R-hat and the least effective size over k quantities, each (S,).

    Also of the squares: a trajectory of half a period mixes means at once, and squares never.

    Args:
        values: (draws, chains, S, k).

    Source: Gelman and Rubin (1992) with split chains; Geyer (2011).
    """
    from bfl.keras import tfp

    values = np.concatenate([values, (values - values.mean(axis=(0, 1))) ** 2], axis=-1)
    r_hat = tfp.mcmc.potential_scale_reduction(values, split_chains=True)
    size = tfp.mcmc.effective_sample_size(
        values, filter_beyond_positive_pairs=True, cross_chain_dims=1
    )
    return np.asarray(r_hat).max(axis=-1), np.asarray(size).min(axis=-1)
