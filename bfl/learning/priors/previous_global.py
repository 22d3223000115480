"""The global posterior of the previous round."""

from __future__ import annotations

import numpy as np

from bfl.federation.parts import Arrays
from bfl.learning.priors.base import NormalPrior, Prior, priors
from bfl.posteriors import Posterior


@priors.register("previous-global")
class PreviousGlobalPrior(Prior):
    """The global posterior of the previous round: the one that the client has received.

    Source: Fischer et al. (2024), section 3.7 and Table 5. It is also the prior that distributed
    weight consolidation corrects for (section 2.5.5).
    """

    def requires(self) -> frozenset[str]:
        """Return that variances are received."""
        return frozenset({"sent-variances"})

    def density(self, received: Posterior, state: Arrays) -> NormalPrior:
        """Return the received mean and standard deviation, (D,) each."""
        return NormalPrior(received.mean, np.sqrt(received.variance))
