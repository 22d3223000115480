"""The Flower Strategies of this package's pooling rules, one subclass each.

All take the keyword arguments of ``PosteriorPooling`` and the settings of their rule. ω_k are the
clients' weights, with sum 1; the kernels, papers and equations are in the modules imported here. A
rule from elsewhere (a plugin, a file of your own) gets its Strategy in the same form from
``strategies.strategy_class``; a test holds this file to the registry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bfl.aggregation.pooling.averages import (
    LogVarianceAveragingRule,
    NaiveWeightedAveragingRule,
    WassersteinBarycentreRule,
    WeightedSumOfNormalsRule,
)
from bfl.aggregation.pooling.clamped_partial_sums import (
    ClampedNaiveWeightedAveragingRule,
    ClampedWeightedSumOfNormalsRule,
)
from bfl.aggregation.pooling.conflation import (
    ConflationRule,
    LogLinearPoolRule,
    WeightedConflationRule,
)
from bfl.aggregation.pooling.distributed_weight_consolidation import (
    DistributedWeightConsolidationRule,
)
from bfl.aggregation.pooling.factor_changes import FactorChangesRule
from bfl.aggregation.pooling.linear_pool import (
    ClientGaussianRule,
    LinearPoolRule,
    PopulationPoolingRule,
)
from strategies.posterior_pooling import PosteriorPooling


@dataclass(kw_only=True, eq=False, repr=False)
class ClampedNaiveWeightedAveraging(PosteriorPooling):
    """Average means and variances, with every partial sum of variances clamped from below.

    μ = Σ ω_k μ_k and σ² = Σ ω_k σ_k², with variances clamped to [e⁻ᶜ, eᶜ],
    c = ``partial_sum_clamp``.
    """

    rule_class = ClampedNaiveWeightedAveragingRule

    partial_sum_clamp: float = 8.0


@dataclass(kw_only=True, eq=False, repr=False)
class ClampedWeightedSumOfNormals(PosteriorPooling):
    """Pool by the weighted sum of normals, with every partial sum of variances clamped.

    μ = Σ ω_k μ_k and σ² = Σ ω_k² σ_k², with variances clamped to [e⁻ᶜ, eᶜ],
    c = ``partial_sum_clamp``.
    """

    rule_class = ClampedWeightedSumOfNormalsRule

    partial_sum_clamp: float = 8.0


@dataclass(kw_only=True, eq=False, repr=False)
class ClientGaussian(PosteriorPooling):
    """Fit a Gaussian to the clients' means, as if each client were one observation.

    μ = Σ ω_k μ_k and σ² = max(Σ ω_k (μ_k − μ)², ``dispersion_floor``).
    """

    rule_class = ClientGaussianRule

    dispersion_floor: float = 1e-12


class Conflation(PosteriorPooling):
    """Pool by conflation: the normalised product of the clients' densities.

    σ² = 1 / Σ 1/σ_k² and μ = σ² Σ μ_k/σ_k²: by inverse variances, whatever the weights.
    """

    rule_class = ConflationRule


@dataclass(kw_only=True, eq=False, repr=False)
class DistributedWeightConsolidation(PosteriorPooling):
    """Multiply the clients' densities, and count the prior that they share once.

    σ² = 1 / (Σ 1/σ_k² − (K−1)/σ_o²) and μ = σ² (Σ μ_k/σ_k² − (K−1) μ_o/σ_o²), with N(μ_o, σ_o²) the
    previous global posterior; ``negative_precision`` says what becomes of a negative difference.
    """

    rule_class = DistributedWeightConsolidationRule

    negative_precision: Literal["conflation", "error"] = "conflation"


@dataclass(kw_only=True, eq=False, repr=False)
class FactorChanges(PosteriorPooling):
    """Add a share of each client's change to the previous posterior (PVI).

    η ← η(q) + ρ Σ (η(q_k) − η(q)) in natural parameters η = (Λμ, Λ), with ρ = ``damping`` or less,
    so that each parameter keeps ``least_precision_share`` of its precision.
    """

    rule_class = FactorChangesRule

    damping: float = 1.0
    least_precision_share: float = 0.1


class LinearPool(PosteriorPooling):
    """Pool by the mean and the variance of the mixture of the clients' densities.

    μ = Σ ω_k μ_k and σ² = Σ ω_k σ_k² + Σ ω_k (μ_k − μ)².
    """

    rule_class = LinearPoolRule


class LogLinearPool(PosteriorPooling):
    """Pool by the normalised weighted geometric mean of the clients' densities.

    μ = Σ (ω_k μ_k/σ_k²) / Σ (ω_k/σ_k²) and σ² = 1 / Σ (ω_k/σ_k²).
    """

    rule_class = LogLinearPoolRule


class LogVarianceAveraging(PosteriorPooling):
    """Average the means, and the logarithms of the variances.

    μ = Σ ω_k μ_k and σ² = exp(Σ ω_k log σ_k²).
    """

    rule_class = LogVarianceAveragingRule


class NaiveWeightedAveraging(PosteriorPooling):
    """Average the means and the variances; of a network of points this is FedAvg.

    μ = Σ ω_k μ_k and σ² = Σ ω_k σ_k².
    """

    rule_class = NaiveWeightedAveragingRule


@dataclass(kw_only=True, eq=False, repr=False)
class PopulationPooling(PosteriorPooling):
    """Pool by the moments of finite samples of the clients' posteriors.

    μ = Σ X_i / n and σ² = Σ (X_i − μ)² / n, with N ω_k samples X_i of client k's posterior,
    N = ``population_size``.
    """

    rule_class = PopulationPoolingRule

    population_size: int = 1000


class WassersteinBarycentre(PosteriorPooling):
    """Average the means and the standard deviations.

    μ = Σ ω_k μ_k and σ = Σ ω_k σ_k.
    """

    rule_class = WassersteinBarycentreRule


class WeightedConflation(PosteriorPooling):
    """Pool by the product of the clients' densities raised to ω_k / ω_max.

    μ = Σ (ω_k μ_k/σ_k²) / Σ (ω_k/σ_k²) and σ² = ω_max / Σ (ω_k/σ_k²).
    """

    rule_class = WeightedConflationRule


class WeightedSumOfNormals(PosteriorPooling):
    """Pool by the distribution of Σ ω_k θ_k for independent θ_k ~ N(μ_k, σ_k²).

    μ = Σ ω_k μ_k and σ² = Σ ω_k² σ_k².
    """

    rule_class = WeightedSumOfNormalsRule
