"""What a prior is."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import numpy.typing as npt

from bfl.posteriors import Posterior
from bfl.registry import Component, Registry


class Prior(Component):
    """The Gaussian p(θ) that a variational client's loss compares its posterior with."""

    @abstractmethod
    def normal(self, received: Posterior) -> tuple[npt.NDArray[np.floating] | float, ...]:
        """Return mean and standard deviation: vectors (D,) or one number for all.

        Args:
            received: The global posterior that the client has received this round.
        """


priors: Registry[Prior] = Registry("prior", "bfl.priors")
