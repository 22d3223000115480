"""The global posterior of the previous round."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bfl.posteriors import Posterior
from bfl.priors.base import Prior, priors


@priors.register("previous-global")
class PreviousGlobalPrior(Prior):
    """The global posterior of the previous round: the one that the client has received.

    Source: Fischer et al. (2024), section 3.7 and Table 5. It is also the prior that distributed
    weight consolidation corrects for (section 2.5.5).
    """

    def normal(
        self, received: Posterior
    ) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.floating]]:
        """Return the received mean and standard deviation, (D,) each."""
        return received.mean, np.sqrt(received.variance)
