"""What a start is: the posterior that local training begins with, which need not be the received.

The prior and the proximal distance are taken from what a client has received, whatever its start.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from bfl.federation.parts import Arrays, Part
from bfl.posteriors import Posterior
from bfl.registry import Registry


class Start(Part):
    """Says where a client's optimizer begins in a round."""

    @abstractmethod
    def begin(
        self, state: Arrays, received: Posterior, initial: Callable[[], Posterior]
    ) -> Posterior:
        """Return where the optimizer begins.

        Args:
            state: The client's state.
            received: The global posterior that the client has received this round.
            initial: Gives the posterior that the network begins with by itself, the same for all
                clients.
        """


starts: Registry[Start] = Registry("start", "bfl.learning.starts")
