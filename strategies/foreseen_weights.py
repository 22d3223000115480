"""Clients' weights before they have replied: what lets a server pool replies as they come.

The server knows who holds how many examples. So each update can be added to the sums when its turn
comes, and let go: the server's memory does not grow with the number of clients. If all reply, the
result is, bit for bit, that of pooling all updates together; if some do not, the weights of the
others do not sum to 1, which all rules but those whose ``weights_are_fractions`` make up for.
"""

from __future__ import annotations

from collections.abc import Mapping

from bfl.pooling import normalised
from bfl.weightings import Weighting
from strategies.updates import ClientUpdate


class ForeseenWeights:
    """The weights of a round's clients, from the numbers of examples that are expected of them.

    Args:
        weighting: A scheme that goes by ``counts_only``.
        num_examples: What each client that is asked holds, by partition id; all at least 1.
    """

    def __init__(self, weighting: Weighting, num_examples: Mapping[int, int]) -> None:
        fractions = normalised(weighting.weigh_counts(list(num_examples.values())))
        self._weighting = weighting
        self._num_examples = num_examples
        self._fractions = dict(zip(num_examples, fractions, strict=True))

    def of(self, update: ClientUpdate) -> float:
        """Return a client's weight; it follows what the client itself says of its examples."""
        counts = (update.num_examples, self._num_examples[update.partition_id])
        said, expected = self._weighting.gamma((), counts, None)
        return self._fractions[update.partition_id] * float(said / expected)
