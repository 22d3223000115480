"""Counts of a round: failures, refusals, and the measurements of each pooled client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bfl.experiments.results.evaluated_clients import impossible_numbers
from bfl.federation.client_metrics import NUM_EXAMPLES, of_each_client, recorded


@dataclass(frozen=True)
class PooledClient:
    """A client whose update was pooled, without its posterior.

    Attributes:
        partition_id: Which client it is.
        num_examples: Its number of training examples.
        metrics: What it has measured; nothing where its update is a part of a sum alone.
    """

    partition_id: int
    num_examples: int
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RoundStatistics:
    """Counts of a round's clients when their updates are pooled.

    Attributes:
        asked: How many clients were asked.
        refused: How many updates were refused.
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
        return {
            "clients": len(self.pooled),
            "failures": self.asked - len(self.pooled) - self.refused,
            "refused": self.refused,
            **_mean_metrics([(client.num_examples, client.metrics) for client in self.pooled]),
        }

    def clients(self, weights: Sequence[float]) -> list[dict[str, Any]]:
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


def _mean_metrics(updates: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, float]:
    """Return what a round's record says of its clients' metrics, under the names of the record.

    The means stand in the clients' namespace; the total number of examples is the server's own.

    Args:
        updates: Each client's number of examples and what it has measured.
    """
    means = {recorded(name): mean for name, mean in mean_metrics(updates).items()}
    return {NUM_EXAMPLES: sum(count for count, _ in updates), **means}


def mean_metrics(updates: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, float]:
    """Return clients' metrics averaged with the numbers of examples of those that have sent each.

    What cannot have been measured is left out, so no client moves a mean beyond what honest ones
    could.

    Args:
        updates: Each client's number of examples and what it has measured.
    """
    means: dict[str, float] = {}
    believed = [(count, _believed(measured)) for count, measured in updates]
    for name in dict.fromkeys(name for _, measured in believed for name in measured):
        senders = [(measured[name], count) for count, measured in believed if name in measured]
        values, counts = zip(*senders, strict=True)
        means[name] = float(np.average(values, weights=counts))
    return means


def _believed(measured: Mapping[str, float]) -> dict[str, float]:
    impossible = dict(impossible_numbers(measured))
    return {name: value for name, value in measured.items() if name not in impossible}
