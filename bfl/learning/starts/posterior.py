"""Training begins with the received posterior."""

from __future__ import annotations

from collections.abc import Callable

from bfl.federation.parts import Arrays
from bfl.learning.starts.base import Start, starts
from bfl.posteriors import Posterior


@starts.register("posterior", aliases=("received",))
class PosteriorStart(Start):
    """The received posterior.

    Source: Fischer et al. (2024), Algorithm 1.
    """

    def requires(self) -> frozenset[str]:
        """Return that variances are received."""
        return frozenset({"sent-variances"})

    def begin(
        self, state: Arrays, received: Posterior, initial: Callable[[], Posterior]
    ) -> Posterior:
        """Return the received posterior."""
        return received
