"""Sums that clients are asked for, and the posterior pooled from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bfl.aggregation.pooling import Pooled, PoolingRule, pooled_statistics
from bfl.aggregation.precision_spread import DISTANCE, SPREAD
from bfl.aggregation.weightings import Weighting
from bfl.errors import PosteriorError
from bfl.federation.client_metrics import NUM_EXAMPLES
from bfl.federation.secure_aggregation.accuracy import agreed_exponents, check_accuracy
from bfl.federation.secure_aggregation.fixed_point import Ring
from bfl.federation.secure_aggregation.masking import decoded_statistics
from bfl.federation.secure_aggregation.messages import SecureSums
from bfl.posteriors import Posterior
from strategies.pool_updates import (
    foreseen_weights,
)

if TYPE_CHECKING:
    from strategies.method import Method

OF_UPDATES = ("effective-clients", "largest-weight")
"""Numbers of a round's record about its clients, where their updates are seen."""

HIDDEN = "hidden"
"""Value of these numbers where the updates are not seen."""


@dataclass(frozen=True)
class WantedSum:
    """Sum that the clients of a round are asked for.

    Attributes:
        secure_sums: How.
        rule: The pooling rule.
        previous: The previous global posterior.
        weights: Their weights, by partition id.
        total: The sum of their γ, by which a client knows its weight from its own.
        exponents: The exponents of the statistics and, last, of the point parameters.
        size: The number of elements of a client's vector.
    """

    secure_sums: SecureSums
    rule: PoolingRule
    previous: Posterior
    weights: Mapping[int, float]
    total: float
    exponents: Sequence[int]
    size: int

    def check(self, fewest: int) -> None:
        """Raise if rounding could carry the pooled posterior further than is promised.

        The grid follows from the previous posterior, which is another one in each round.

        Raises:
            ConfigurationError: Saying how far, and which keys make the range smaller.
        """
        allowed, weights = self.secure_sums.value_range, list(self.weights.values())
        check_accuracy(self.rule, allowed, self.previous, weights, fewest)


@dataclass(frozen=True)
class ClientsSum:
    """Sum that clients have made.

    Attributes:
        partition_ids: Who is in the sum, sorted.
        total: The sum of their vectors.
    """

    partition_ids: Sequence[int]
    total: Ring


def wanted_sum(
    secure_sums: SecureSums,
    rule: PoolingRule,
    weighting: Weighting,
    previous: Posterior,
    num_examples: Mapping[int, int],
) -> WantedSum:
    """Return what the clients of a round are to add up.

    Args:
        secure_sums: How.
        rule: The pooling rule.
        weighting: A scheme that goes by ``counts_only``.
        previous: The previous global posterior.
        num_examples: What each client that is asked holds, by partition id.
    """
    weights = foreseen_weights(weighting, num_examples)
    exponents = agreed_exponents(rule, secure_sums.value_range, previous, list(weights.values()))
    size = rule.statistics * previous.size + previous.point.size
    total = math.fsum(weighting.gamma_of_count(count) for count in num_examples.values())
    return WantedSum(secure_sums, rule, previous, weights, total, exponents, size)


def hidden_metrics(method: Method, private: bool = False) -> dict[str, str]:
    """Return what of a round's record is hidden, as the record says it.

    Args:
        method: The parts of the round.
        private: Whether nothing that clients have may be told of them but what noise has hidden.
    """
    own = (NUM_EXAMPLES,) if private else ()
    unseen = OF_UPDATES if method.exchange.secure_sums else ()
    compared = (SPREAD, DISTANCE) if unseen and method.pooling.by_precision else ()
    return dict.fromkeys((*own, *unseen, *compared), HIDDEN)


def pool_sums(
    rule: PoolingRule,
    wanted: WantedSum,
    found: ClientsSum,
    previous: Posterior,
    unrounded: Posterior | None = None,
) -> Pooled:
    """Return the pooled posterior of what clients have added up, as pooling one by one gives it.

    Args:
        rule: The pooling rule.
        wanted: What they were asked for.
        found: What they have added up.
        previous: The previous global posterior.
        unrounded: The same as it was pooled, in float64, for a rule that ``keeps_unrounded``.

    Raises:
        PosteriorError: It is no posterior: a client has sent what is no statistics, and which one
            cannot be known.
    """
    weights = [wanted.weights[client] for client in found.partition_ids]
    sums = decoded_statistics(found.total, wanted.exponents, previous.size, previous.point.size)
    try:
        return pooled_statistics(rule, sums, weights, previous, unrounded)
    except PosteriorError as error:
        raise PosteriorError(
            f"{error}; only the sum of the clients' statistics is known (exchange 'masked'), not "
            "which of them has sent what"
        ) from error
