"""The Flower Strategies of this package's pooling rules, one subclass each.

A rule from elsewhere (a plugin, a file of one's own) gets its Strategy in the same form from
``strategies.strategy_class``; a test holds this file to the registry.
"""

from __future__ import annotations

from bfl.aggregation.pooling.clamped_partial_sums import (
    ClampedNaiveWeightedAveragingRule,
    ClampedWeightedSumOfNormalsRule,
)
from bfl.aggregation.pooling.client_gaussian import ClientGaussianRule
from bfl.aggregation.pooling.conflation import ConflationRule
from bfl.aggregation.pooling.distributed_weight_consolidation import (
    DistributedWeightConsolidationRule,
)
from bfl.aggregation.pooling.factor_changes import FactorChangesRule
from bfl.aggregation.pooling.linear_pool import LinearPoolRule
from bfl.aggregation.pooling.log_linear_pool import LogLinearPoolRule
from bfl.aggregation.pooling.log_variance_averaging import (
    LogVarianceAveragingRule,
)
from bfl.aggregation.pooling.naive_weighted_averaging import (
    NaiveWeightedAveragingRule,
)
from bfl.aggregation.pooling.population_pooling import PopulationPoolingRule
from bfl.aggregation.pooling.weighted_conflation import WeightedConflationRule
from bfl.aggregation.pooling.weighted_sum_of_normals import (
    WeightedSumOfNormalsRule,
)
from strategies.posterior_pooling import PosteriorPooling


class ClampedNaiveWeightedAveraging(PosteriorPooling):
    """Pools by ``clamped-naive-weighted-averaging``, whose settings are keyword arguments."""

    rule_class = ClampedNaiveWeightedAveragingRule


class ClampedWeightedSumOfNormals(PosteriorPooling):
    """Pools by ``clamped-weighted-sum-of-normals``, whose settings are keyword arguments."""

    rule_class = ClampedWeightedSumOfNormalsRule


class ClientGaussian(PosteriorPooling):
    """Pools by ``client-gaussian``, whose settings are keyword arguments."""

    rule_class = ClientGaussianRule


class Conflation(PosteriorPooling):
    """Pools by ``conflation``, whose settings are keyword arguments."""

    rule_class = ConflationRule


class DistributedWeightConsolidation(PosteriorPooling):
    """Pools by ``distributed-weight-consolidation``, whose settings are keyword arguments."""

    rule_class = DistributedWeightConsolidationRule


class FactorChanges(PosteriorPooling):
    """Pools by ``factor-changes``, whose settings are keyword arguments."""

    rule_class = FactorChangesRule


class LinearPool(PosteriorPooling):
    """Pools by ``linear-pool``, whose settings are keyword arguments."""

    rule_class = LinearPoolRule


class LogLinearPool(PosteriorPooling):
    """Pools by ``log-linear-pool``, whose settings are keyword arguments."""

    rule_class = LogLinearPoolRule


class LogVarianceAveraging(PosteriorPooling):
    """Pools by ``log-variance-averaging``, whose settings are keyword arguments."""

    rule_class = LogVarianceAveragingRule


class NaiveWeightedAveraging(PosteriorPooling):
    """Pools by ``naive-weighted-averaging``, whose settings are keyword arguments."""

    rule_class = NaiveWeightedAveragingRule


class PopulationPooling(PosteriorPooling):
    """Pools by ``population-pooling``, whose settings are keyword arguments."""

    rule_class = PopulationPoolingRule


class WeightedConflation(PosteriorPooling):
    """Pools by ``weighted-conflation``, whose settings are keyword arguments."""

    rule_class = WeightedConflationRule


class WeightedSumOfNormals(PosteriorPooling):
    """Pools by ``weighted-sum-of-normals``, whose settings are keyword arguments."""

    rule_class = WeightedSumOfNormalsRule
