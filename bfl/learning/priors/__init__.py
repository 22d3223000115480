"""Priors of variational clients: the p in the KL[q ‖ p] of their loss."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from bfl.federation.parts import Arrays, Trained, TwoSidedPart
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import NaturalParameters
from bfl.registry import Registry

Array = npt.NDArray[np.float64]

LEAST_PRECISION = 1e-30  # nearer to 0 it counts as 0: its deviation would be beyond float32


@dataclass(frozen=True)
class Standardized:
    """Prior as both forms show it to a network: vectors (D,), or numbers that stand for all.

    KL[q ‖ p] = Σ ½ (g (σ² + (μ − c)²) / r² − 1) − log(σ / r) − s (μ − c), and a constant, with the
    centre c, the positive scale r, the sign g, 1 where the prior is a density and else 0 or −1, and
    the slope s.
    """

    centre: npt.NDArray[np.floating] | float
    scale: npt.NDArray[np.floating] | float
    sign: npt.NDArray[np.floating] | float = 1.0
    slope: npt.NDArray[np.floating] | float = 0.0
    constant: float = 0.0


@dataclass(frozen=True)
class NormalPrior:
    """N(mean, scale²) for every Gaussian parameter: vectors (D,), or one number for all."""

    mean: npt.NDArray[np.floating] | float
    scale: npt.NDArray[np.floating] | float

    def standardize(self) -> Standardized:
        """Return it around its mean, in its standard deviations."""
        return Standardized(self.mean, self.scale)


@dataclass(frozen=True)
class QuadraticPrior:
    """−log p(θ) = ½ Λ (θ − c)² − s (θ − c) + const, for every Gaussian parameter.

    It need not be a density: a precision Λ may be 0 or negative. Around a centre c near θ the two
    terms keep the digits that ½ Λ θ² and Λ μ θ would lose in float32. All are vectors (D,).
    """

    centre: npt.NDArray[np.floating]
    slope: Array
    precision: Array

    def standardize(self) -> Standardized:
        """Return it around its centre; the constant is that of all densities among the D."""
        sign = np.where(np.abs(self.precision) < LEAST_PRECISION, 0.0, np.sign(self.precision))
        scale = 1.0 / np.sqrt(np.where(sign == 0, 1.0, np.abs(self.precision)))
        proper = sign > 0
        constant = 0.5 * np.sum(np.square(self.slope[proper] * scale[proper]))
        return Standardized(self.centre, scale, sign, self.slope, float(constant))


Density = NormalPrior | QuadraticPrior


class Prior(TwoSidedPart):
    """The p(θ) that a variational client's loss compares its posterior with."""

    def first_posterior(self, initial: Posterior) -> Posterior:
        """Return the global posterior before the first round, by default the network's own."""
        return initial

    @abstractmethod
    def density(self, received: Posterior, state: Arrays) -> Density:
        """Return the prior of a round, in which a client has received a global posterior."""


priors: Registry[Prior] = Registry("prior", "bfl.learning.priors")


FACTOR, CHANGE = "factor", "change"


def _arrays(name: str, natural: NaturalParameters) -> Arrays:
    return {f"{name}-weighted-mean": natural.weighted_mean, f"{name}-precision": natural.precision}


def _natural(name: str, arrays: Arrays) -> NaturalParameters:
    return NaturalParameters(arrays[f"{name}-weighted-mean"], arrays[f"{name}-precision"])


@priors.register("cavity")
class CavityPrior(Prior):
    """Cavity of all other clients and the prior: the global posterior over the client's own factor.

    The client keeps a factor t_k, which begins by saying nothing, so that the global posterior is
    the product of the prior and all factors. Its prior in a round is q / t_k. It sends q_k; once
    the server has pooled it with damping ρ, t_k has become t_k (q_k / q)^ρ.

    A cavity need not be a density: where other clients' factors take certainty away its precision
    may be 0 or less. Its logarithm is a quadratic all the same, and the objective with it as good.
    Before the first round the global posterior is the prior itself, N(0, prior-scale² I).

    Source: Bui et al. (2018), "Partitioned variational inference", Algorithm 1; Ashman et al.
    (2022), Algorithm 1.
    """

    state_name: ClassVar[str] = "factors"
    always_requires: ClassVar[frozenset[str]] = frozenset(
        {"factors", "sent-variances", "own-likelihood"}
    )
    always_excludes: ClassVar[frozenset[str]] = frozenset({"corrupted-updates", "fitted-variances"})
    always_has: ClassVar[frozenset[str]] = frozenset({"cavity"})

    # Below the least scale the variance would be 0 in float32.
    prior_scale: float = Field(10.0, ge=1e-9, le=1e6)
    """standard deviation of the prior"""

    def first_posterior(self, initial: Posterior) -> Posterior:
        """Return the prior, q₀ = p, with the network's own point values, which have none."""
        return Posterior(
            np.zeros_like(initial.mean),
            np.full_like(initial.variance, self.prior_scale**2),
            initial.point,
        )

    def begin_client(self, received: Posterior) -> Arrays:
        """Return a factor that says nothing."""
        return _arrays(FACTOR, NaturalParameters.nothing(received.size))

    def density(self, received: Posterior, state: Arrays) -> QuadraticPrior:
        """Return q / t_k around the received mean m: slope Λ_k m − η_k and precision Λ − Λ_k."""
        factor = _natural(FACTOR, state)
        mean = received.mean.astype(np.float64)
        return QuadraticPrior(
            centre=received.mean,
            slope=factor.precision * mean - factor.weighted_mean,
            precision=1.0 / received.variance.astype(np.float64) - factor.precision,
        )

    def conclude(self, state: Arrays, trained: Trained) -> tuple[Arrays, Arrays]:
        """Return nothing to send, and the factor with the change that waits to be pooled."""
        sent = NaturalParameters.of(trained.sent.mean, trained.sent.variance)
        change = sent - NaturalParameters.of(trained.received.mean, trained.received.variance)
        return {}, {**state, **_arrays(CHANGE, change)}

    def commit(self, kept: Arrays, damping: float) -> Arrays:
        """Return the factor with the damped change made."""
        return _arrays(FACTOR, _natural(FACTOR, kept) + damping * _natural(CHANGE, kept))


@priors.register("duals")
class DualPrior(CavityPrior):
    """The received posterior over the client's own dual: the client of Bayesian ADMM.

    The dual v_k/ρ takes the place of the cavity's factor, and a global posterior need not be the
    product of all of them. Once the server has pooled the client, v_k/ρ ← v_k/ρ + γ (λ_k − λ_g);
    see the server optimizer ``bayesian-admm``, which sums them.

    Source: Möllenhoff et al. (2026), "Federated ADMM from Bayesian duality", Fig. 2; their code,
    ``bayes_admm_diagonalcov``.
    """

    state_name: ClassVar[str] = "duals"
    always_requires: ClassVar[frozenset[str]] = frozenset(
        {"summed-duals", "sent-variances", "own-likelihood"}
    )
    always_has: ClassVar[frozenset[str]] = frozenset({"duals"})

    dual_damping: float = Field(1.0, gt=0.0, le=1.0)
    """γ, share of its step that a client's dual makes in a round"""

    def commit(self, kept: Arrays, damping: float) -> Arrays:
        """Return the dual with the share γ of its step made."""
        return super().commit(kept, self.dual_damping)


@priors.register("fixed")
class FixedPrior(Prior):
    """N(0, prior-scale² I), the same in every round.

    Source: Fischer et al. (2024), sections 2.4 and 3.3: p(θ) = N(0, 100 I), a scale of 10.
    """

    prior_scale: float = Field(10.0, ge=1e-9, le=1e6)
    """standard deviation of the prior"""

    def density(self, received: Posterior, state: Arrays) -> NormalPrior:
        """Return 0 and ``prior_scale``."""
        return NormalPrior(0.0, self.prior_scale)


@priors.register("flat")
class FlatPrior(Prior):
    """No prior: a constant, which is no density. KL[q ‖ p] is −H[q], the negative entropy of q.

    With it and ``temperature`` = T the ELBO fits q to the normalised likelihood to the power 1/T,
    KL[q ‖ p(D|θ)^(1/T) / γ]: a client makes small

        mean_n E_q[−log p(y_n | x_n, θ)] − (T / N) H[q],

    which is that divergence times T / N, up to a constant. Near a mode where the mean loss has
    second derivatives h, σ² is about T / (N h).

    Source: Yang et al. (2023), "A novel Bayesian federated learning framework to address
    multi-dimensional heterogeneity problem" (HBFL), Eq. 4.1.
    """

    def density(self, received: Posterior, state: Arrays) -> QuadraticPrior:
        """Return a quadratic of precision 0 and slope 0."""
        nothing = np.zeros(received.size)
        return QuadraticPrior(np.zeros(received.size, np.float32), nothing, nothing)


@priors.register("previous-global")
class PreviousGlobalPrior(Prior):
    """The global posterior of the previous round: the one that the client has received.

    Source: Fischer et al. (2024), section 3.7 and Table 5. It is also the prior that distributed
    weight consolidation corrects for (section 2.5.5).
    """

    always_requires: ClassVar[frozenset[str]] = frozenset({"sent-variances"})
    always_excludes: ClassVar[frozenset[str]] = frozenset({"fitted-variances"})

    def density(self, received: Posterior, state: Arrays) -> NormalPrior:
        """Return the received mean and standard deviation, (D,) each."""
        return NormalPrior(received.mean, np.sqrt(received.variance))
