"""What the record of a round says of each client whose update was pooled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bfl.client_metrics import NUM_EXAMPLES, OF_EACH_CLIENT
from strategies.updates import ClientUpdate


class ClientRecords:
    """The entries of one round's clients, made while their updates pass on to the pool.

    An entry has ``client``, the partition id; ``num-examples``; ``weight``, the client's share ω_k
    of all weights; and what the client has measured: the negative log-likelihood per example and
    the divergence from the prior of its last epoch, in nats, its seconds, and where it has test
    data of its own the accuracy of its posterior on them and their number.
    """

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []

    def noted(self, updates: Iterable[ClientUpdate]) -> Iterator[ClientUpdate]:
        """Yield updates as they come, and take note of each; no posterior is kept."""
        for update in updates:
            sent = update.metrics
            measured = {name: sent[name] for name in OF_EACH_CLIENT if name in sent}
            entry = {"client": update.partition_id, NUM_EXAMPLES: update.num_examples}
            self._entries.append({**entry, **measured})
            yield update

    def with_weights(self, weights: Sequence[float]) -> list[dict[str, Any]]:
        """Return the entries in the order of partition ids, each with its client's weight.

        Args:
            weights: (K,) weights with sum 1, in that order; none where a strategy that pools in a
                way of its own does not say them.
        """
        if not weights:
            return self._entries
        return [
            {**entry, "weight": weight}
            for entry, weight in zip(self._entries, weights, strict=True)
        ]
