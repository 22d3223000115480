"""One client's statistics by themselves, and the pooled posterior of their sums.

For who adds them up elsewhere, and may know nothing but the sums: ``pool`` with its steps apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bfl.aggregation.pooling.base import Array, PoolingRule, Totals
from bfl.aggregation.pooling.frame import Frame, epsilon_of
from bfl.aggregation.pooling.sums import Pooled, Sums, pooled
from bfl.aggregation.pooling.weights import checked_weight
from bfl.posteriors.posterior import Posterior


class Statistics(NamedTuple):
    """What is summed over clients.

    Attributes:
        gaussian: (S, D) statistics of the rule.
        point: (P,) point parameters times the weight.
    """

    gaussian: Array
    point: Array


def client_statistics(
    rule: PoolingRule, posterior: Posterior, weight: float, previous: Posterior, threads: int = 1
) -> Statistics:
    """Return what a client adds to a rule's sums; zeros for a weight of 0.

    Args:
        rule: The pooling rule, which is not stochastic.
        posterior: The client's posterior.
        weight: Its weight, as it is.
        previous: The previous global posterior, which gives the reference.
        threads: The number of threads to work with; the bits do not depend on it.

    Raises:
        PosteriorError: The posterior is not valid or has another size.
        ValueError: The weight is negative or not finite, or the rule draws random numbers.
    """
    frame = Frame.like(rule, previous, previous, threads)
    sums = Sums.zero(frame)
    if checked_weight(weight):
        posterior.check(like=previous)
        sums.add(frame, [frame.member(posterior, weight, None)._replace(sound=True)])
    return Statistics(sums.statistics, sums.point)


def pooled_statistics(
    rule: PoolingRule,
    sums: Statistics,
    weights: Sequence[float],
    previous: Posterior,
    unrounded: Posterior | None = None,
    threads: int = 1,
) -> Pooled:
    """Return the pooled posterior of summed statistics, in the types of the previous one.

    Args:
        rule: The pooling rule.
        sums: The sums over the clients; they may be changed in place.
        weights: The weights with which the clients' statistics were made.
        previous: The previous global posterior.
        unrounded: The same as it was pooled, in float64, for a rule that ``keeps_unrounded``.
        threads: The number of threads to work with; the bits do not depend on it.

    Raises:
        PosteriorError: No weight is positive, or the rule gives what is no posterior.
    """
    frame = Frame.like(rule, previous, previous, threads, unrounded)
    epsilon, totals = epsilon_of(previous), Totals()
    for weight in filter(checked_weight, weights):
        totals += Totals(1, weight, weight, rule.mass(weight), epsilon)
    return pooled(frame, Sums(sums.gaussian, sums.point, totals))
