"""Training begins at the received mean, with the variances that the client has trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from bfl.federation.parts import Arrays, Trained
from bfl.learning.starts.base import starts
from bfl.learning.starts.mean import MeanStart
from bfl.posteriors import Posterior


@starts.register("mean-own-variances", aliases=("mean-kept", "kept"))
class MeanOwnVariancesStart(MeanStart):
    """The received mean with the client's own variances: those of its last update that was pooled.

    Until there is one they are those of the network's initial posterior. It is the other reading of
    Algorithm 1, whose first line may stand before the first round or in each.

    Source: Yang et al. (2023), "A novel Bayesian federated learning framework to address
    multi-dimensional heterogeneity problem" (HBFL), Algorithm 1, ClientUpdate, line 1.
    """

    state_name: ClassVar[str] = "start"

    def excludes(self) -> frozenset[str]:
        """Return that a client's variances are those that it has sent."""
        return super().excludes() | {"corrupted-updates"}

    def begin_client(self, received: Posterior) -> Arrays:
        """Return that nothing of the client has been pooled yet."""
        return {}

    def begin(
        self, state: Arrays, received: Posterior, initial: Callable[[], Posterior]
    ) -> Posterior:
        """Return the received mean and points with the client's variances."""
        variance = state["variance"] if state else initial().variance
        return Posterior(received.mean, variance, received.point)

    def conclude(self, state: Arrays, trained: Trained) -> tuple[Arrays, Arrays]:
        """Return nothing to send, and the trained variances."""
        return {}, {"variance": trained.sent.variance}
