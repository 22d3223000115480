"""Training begins at the received mean, with the variances that the network begins with."""

from __future__ import annotations

from collections.abc import Callable

from bfl.federation.parts import Arrays
from bfl.learning.starts.base import Start, starts
from bfl.posteriors import Posterior


@starts.register("mean")
class MeanStart(Start):
    """The received mean with fresh variances: those of the network's initial posterior.

    In some hundred steps of Adam ρ moves by no more than its rate times their number, so the
    variances that clients send differ little, and a pool by precisions is nearly an average; the
    round's ``log-precision-spread`` and ``distance-from-average`` say how nearly.

    Source: Yang et al. (2023), "A novel Bayesian federated learning framework to address
    multi-dimensional heterogeneity problem" (HBFL), Algorithm 1, ClientUpdate, lines 1 and 2.
    """

    def has(self) -> frozenset[str]:
        """Return that training does not begin at what was received."""
        return frozenset({"start-elsewhere"})

    def requires(self) -> frozenset[str]:
        """Return that there are Gaussians."""
        return frozenset({"gaussian"})

    def begin(
        self, state: Arrays, received: Posterior, initial: Callable[[], Posterior]
    ) -> Posterior:
        """Return the received mean and points with the initial variances."""
        return Posterior(received.mean, initial().variance, received.point)
