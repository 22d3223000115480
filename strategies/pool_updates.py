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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl import randomness
from bfl.aggregation.defences import Defence
from bfl.aggregation.pooling import Client, Pooled, PoolingRule, normalised, pool, pool_weighted
from bfl.aggregation.server import ServerRound
from bfl.aggregation.weightings import Weighting, describe_weights
from bfl.experiments.results.evaluated_clients import impossible_numbers
from bfl.federation.client_metrics import NUM_EXAMPLES, of_each_client, recorded
from bfl.posteriors import Posterior
from strategies.updates import ClientUpdate

if TYPE_CHECKING:
    from strategies.flower_clients import FlowerClients
    from strategies.round import OpenRound, Train


def collect_updates(
    opened: OpenRound, clients: FlowerClients, train: Train
) -> tuple[Pooled, RoundStatistics]:
    """Have the clients of a round train, and pool their updates.

    Raises:
        PosteriorError: What is pooled is no posterior.
        RunError: They are too few.
    """
    method, request, options = opened.method, opened.request, opened.options
    seen: list[PooledClient] = []

    def weighed(update: ClientUpdate, weight: float) -> None:
        seen.append(PooledClient(update.partition_id, update.num_examples, update.metrics))
        for option in options:
            option.add(update, weight)

    updates = train(request)
    for option in options:
        updates = option.coming(opened, updates)
    number, server = request.server_round, opened.server
    pooled = pool_updates(
        updates,
        method.pooling,
        method.weighting,
        method.defence,
        previous=request.posterior,
        unrounded=opened.state.unrounded,
        num_examples=assigned(clients.num_examples, request.partition_ids),
        asked=len(request.partition_ids),
        generator=lambda i: randomness.generator(opened.seed, "pooling", number, i),
        on_weighed=weighed,
        server=ServerRound(server, number) if server else None,
    )
    return pooled, RoundStatistics(len(request.partition_ids), request.usable.refused, tuple(seen))


def assigned(num_examples: Mapping[int, int], asked: Sequence[int]) -> dict[int, int]:
    """Return the numbers of examples that the server knows, of those who are asked."""
    return {i: num_examples[i] for i in asked if i in num_examples}


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
        defence: What is done to the posteriors before.
        unrounded: The same as it was pooled, in float64, for a rule that ``keeps_unrounded``.
        num_examples: By partition id, what the clients asked hold as far as the server knows.
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
    reports = [update.metrics for update in together]
    weights = weighting.weigh(posteriors, counts, previous, server, reports)
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


@dataclass(frozen=True)
class PooledClient:
    """A client whose update was pooled, without its posterior.

    Attributes:
        metrics: What it has measured; nothing where its update is a part of a sum alone.
    """

    partition_id: int
    num_examples: int
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RoundStatistics:
    """Counts of a round's clients when their updates are pooled.

    Attributes:
        pooled: Those whose updates were pooled, in the order of partition ids.
    """

    asked: int
    refused: int
    pooled: tuple[PooledClient, ...]

    @property
    def partition_ids(self) -> list[int]:
        """The clients whose updates were pooled, in their order."""
        return [client.partition_id for client in self.pooled]

    def metrics(self) -> dict[str, float]:
        """Return the counts, and the clients' metrics averaged, under the names of the record."""
        means = mean_metrics([(client.num_examples, client.metrics) for client in self.pooled])
        return {
            "clients": len(self.pooled),
            "failures": self.asked - len(self.pooled) - self.refused,
            "refused": self.refused,
            NUM_EXAMPLES: sum(client.num_examples for client in self.pooled),
            # The means stand in the clients' namespace; the total is the server's own.
            **{recorded(name): mean for name, mean in means.items()},
        }

    def entries(self, weights: Sequence[float]) -> list[dict[str, Any]]:
        """Return one entry for each client pooled, in the order of partition ids.

        An entry has ``client``, the partition id; ``num-examples``; what the client has measured
        (the negative log-likelihood per example and the divergence from the prior of its last
        epoch, in nats, its seconds, and where it has test data of its own the accuracy of its
        posterior on them and their number); and ``weight``, its share ω_k of all weights. Of
        clients whose updates nobody sees it is the first two.

        Args:
            weights: (K,) weights with sum 1, in that order; none where updates are not seen.
        """
        shares = [{"weight": weight} for weight in weights] or [{}] * len(self.pooled)
        return [
            {
                "client": client.partition_id,
                NUM_EXAMPLES: client.num_examples,
                **{
                    name: client.metrics[name]
                    for name in sorted(filter(of_each_client, client.metrics))
                },
                **share,
            }
            for client, share in zip(self.pooled, shares, strict=True)
        ]


def mean_metrics(updates: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, float]:
    """Return clients' metrics averaged with the numbers of examples of those that have sent each.

    What cannot have been measured is left out, so no client moves a mean beyond what honest ones
    could.

    Args:
        updates: Each client's number of examples and what it has measured.
    """
    means: dict[str, float] = {}
    believed = [(count, believed_numbers(measured)) for count, measured in updates]
    for name in dict.fromkeys(name for _, measured in believed for name in measured):
        senders = [(measured[name], count) for count, measured in believed if name in measured]
        values, counts = zip(*senders, strict=True)
        means[name] = float(np.average(values, weights=counts))
    return means


def believed_numbers(measured: Mapping[str, float]) -> dict[str, float]:
    """Return what a client has sent, without numbers that it cannot have measured."""
    impossible = dict(impossible_numbers(measured))
    return {name: value for name, value in measured.items() if name not in impossible}
