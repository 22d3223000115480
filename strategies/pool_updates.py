"""A round's updates pooled: as they come where that can be, and otherwise together.

Where the server knows who holds how many examples, and refuses an update that says otherwise, a
weighting by these numbers is known before anybody has replied. Then each update can be added to the
sums when its turn comes, and let go: the server's memory does not grow with the number of clients.
If all reply, the result is, bit for bit, that of pooling all updates together; if some do not, the
weights of the others do not sum to 1, which all rules but those whose ``weights_are_fractions``
make up for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from bfl.aggregation.defences import Defence
from bfl.aggregation.pooling import Client, Pooled, PoolingRule, normalised, pool, pool_weighted
from bfl.aggregation.server import ServerRound
from bfl.aggregation.weightings import Weighting, describe_weights
from bfl.posteriors import Posterior
from strategies.updates import ClientUpdate


def pool_updates(
    updates: Iterable[ClientUpdate],
    rule: PoolingRule,
    weighting: Weighting,
    defence: Defence,
    *,
    previous: Posterior,
    unrounded: Posterior | None = None,
    num_examples: Mapping[int, int],
    asked: int,
    generator: Callable[[int], np.random.Generator],
    on_weighed: Callable[[ClientUpdate, float], None] = lambda update, weight: None,
    server: ServerRound | None = None,
) -> Pooled:
    """Return the pooled posterior of clients' updates, with what is reported of their weights.

    Args:
        updates: In the order of partition ids; they may come while clients are still training.
        rule: The pooling rule.
        weighting: What the clients' weights are.
        defence: What is done to the posteriors before.
        previous: The previous global posterior.
        unrounded: The same as it was pooled, in float64, for a rule that ``keeps_unrounded``.
        num_examples: By partition id, what the clients asked hold as far as the server knows.
        asked: How many clients were asked.
        generator: Gives a client's random generator by its partition id, for a stochastic rule.
        on_weighed: Called with each update as it is pooled, after the defence, and its weight,
            whose scale is the same for all, in the order of partition ids.
        server: The server in this round, for a weighting that needs it.

    Raises:
        PosteriorError: There is no update, or what is pooled is no posterior.
    """
    if (
        weighting.counts_only
        and not rule.weights_are_fractions
        and defence.idle
        and len(num_examples) == asked
    ):
        foreseen = foreseen_weights(weighting, num_examples)
        used: list[float] = []

        def client(update: ClientUpdate) -> Client:
            used.append(foreseen[update.partition_id])
            on_weighed(update, used[-1])
            drawer = generator(update.partition_id) if rule.stochastic else None
            return update.posterior, used[-1], drawer

        clients = map(client, updates)
        pooled = pool_weighted(rule, clients, previous=previous, unrounded=unrounded)
        return _described(pooled, used)
    together = list(updates)
    posteriors = defence.protect([update.posterior for update in together])
    counts = [update.num_examples for update in together]
    weights = weighting.weigh(posteriors, counts, previous, server)
    for update, posterior, weight in zip(together, posteriors, weights, strict=True):
        on_weighed(replace(update, posterior=posterior), float(weight))
    drawers = [generator(u.partition_id) for u in together] if rule.stochastic else None
    pooled = pool(
        rule,
        posteriors,
        weights,
        previous=previous,
        unrounded=unrounded,
        generators=drawers,
    )
    return _described(pooled, weights)


def foreseen_weights(weighting: Weighting, num_examples: Mapping[int, int]) -> dict[int, float]:
    """Return the weights of a round's clients by partition id, with sum 1.

    Args:
        weighting: A scheme that goes by ``counts_only``.
        num_examples: What each client that is asked holds, by partition id; all at least 1.
    """
    fractions = normalised(weighting.weigh_counts(list(num_examples.values())))
    return dict(zip(num_examples, fractions, strict=True))


def _described(pooled: Pooled, weights: Sequence[float] | npt.NDArray[np.floating]) -> Pooled:
    diagnostics = {**pooled.diagnostics, **describe_weights(weights)}
    return replace(pooled, diagnostics=diagnostics, weights=tuple(normalised(weights)))
