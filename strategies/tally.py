"""What is counted in a round: failures, refusals, and what each pooled client has measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bfl.federation.client_metrics import NUM_EXAMPLES, of_each_client
from strategies.updates import ClientUpdate, mean_metrics


class Tally:
    """Counts a round's clients while their updates pass on to the pool; it keeps no posterior.

    Attributes:
        refused: How many updates were refused.
        partition_ids: The clients whose updates were pooled, in their order.
    """

    def __init__(self) -> None:
        self.refused = 0
        self.partition_ids: list[int] = []
        self._measured: list[tuple[int, Mapping[str, float]]] = []

    def add(self, update: ClientUpdate) -> None:
        """Count a client whose update is pooled."""
        self.partition_ids.append(update.partition_id)
        self._measured.append((update.num_examples, update.metrics))

    def add_unseen(self, partition_id: int, num_examples: int) -> None:
        """Count a client of whose update no more is known than that it is in a sum."""
        self.partition_ids.append(partition_id)
        self._measured.append((num_examples, {}))

    def metrics(self, asked: int) -> dict[str, float]:
        """Return the counts, and the clients' metrics averaged, under the names of the record."""
        pooled = len(self.partition_ids)
        return {
            "clients": pooled,
            "failures": asked - pooled - self.refused,
            "refused": self.refused,
            **mean_metrics(self._measured),
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
        shares = [{"weight": weight} for weight in weights] or [{}] * len(self.partition_ids)
        return [
            {
                "client": partition_id,
                NUM_EXAMPLES: count,
                **{name: sent[name] for name in sorted(filter(of_each_client, sent))},
                **share,
            }
            for partition_id, (count, sent), share in zip(
                self.partition_ids, self._measured, shares, strict=True
            )
        ]
