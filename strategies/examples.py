"""Numbers of the clients' examples, as far as the server knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bfl.closing.base import held_back_count
from bfl.errors import ConfigurationError
from bfl.federation.wire import Positions
from strategies.federation import Federation


@dataclass(frozen=True)
class ExampleCounts:
    """Numbers of the clients' examples, as far as the server knows.

    Attributes:
        known: The number of examples by partition id: those that the server has assigned, or those
            that a node with data of its own has declared before the first round.
        most: What a client may claim whose number is not known.
    """

    known: Mapping[int, int]
    most: int

    def total(self, clients: int) -> int:
        """Return how many examples so many clients train on.

        Raises:
            ConfigurationError: Not all of their numbers are known.
        """
        if unknown := [str(i) for i in range(clients) if i not in self.known]:
            raise ConfigurationError(
                "likelihood-examples is 'federation', and the number of examples of partitions "
                f"{', '.join(unknown)} is not known before the first round; allowed: nodes that "
                "declare their examples, examples that the server assigns, or "
                "likelihood-examples='client'"
            )
        return sum(self.known.values())

    @classmethod
    def of(
        cls,
        federation: Federation,
        partition: Sequence[Positions | None] | None,
        most: int,
        held_back: float = 0.0,
    ) -> ExampleCounts:
        """Return what is known of a federation's clients.

        Args:
            federation: The nodes, with the number of examples that they hold of their own.
            partition: The examples that the server assigns, by partition id; None where it does
                not.
            most: The most examples that a client may claim to hold of its own.
            held_back: What share of its examples each client never trains on.

        Raises:
            ConfigurationError: There are more clients than parts, a part is empty, or a node has
                declared more examples of its own than are believed.
        """
        parts = [None] * federation.size if partition is None else partition
        if len(parts) < federation.size:
            raise ConfigurationError(
                f"the partition has {len(parts)} parts and the federation {federation.size} clients"
            )
        known = {}

        def trained_on(examples: int) -> int:
            return examples - max(0, held_back_count(examples, held_back))

        for partition_id, own in federation.own_examples.items():
            part = parts[partition_id]
            if part is None and own > most:
                raise ConfigurationError(
                    f"the node of partition {partition_id} declares {own} examples of its own; "
                    f"allowed: at most max-examples, {most}"
                )
            if part is None:
                if own:  # a node that says nothing is believed in each round, up to the most
                    known[partition_id] = trained_on(own)
                continue
            if not len(part):
                raise ConfigurationError(
                    f"part {partition_id} of the partition is empty: its client has nothing to "
                    "train on; allowed: at least one example for each client"
                )
            known[partition_id] = trained_on(len(part))
        return cls(known, most)
