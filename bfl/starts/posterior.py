"""Training begins with the received posterior."""

from __future__ import annotations

from collections.abc import Callable

from bfl.parts import Arrays
from bfl.posteriors import Posterior
from bfl.starts.base import Start, starts


@starts.register("posterior", aliases=("received",))
class PosteriorStart(Start):
    """The received posterior.

    Source: Fischer et al. (2024), Algorithm 1.
    """

    def begin(
        self, state: Arrays, received: Posterior, initial: Callable[[], Posterior]
    ) -> Posterior:
        """Return the received posterior."""
        return received
