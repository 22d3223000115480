"""Starts: the posterior that local training begins with, which need not be the received.

The prior and the proximal distance are taken from what a client has received, whatever its start.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np

from bfl.federation.parts import Arrays, Trained, TwoSidedPart
from bfl.posteriors import Posterior
from bfl.registry import Registry

Initial = Callable[[], Posterior]  # gives what the network begins with, the same for all clients


class Start(TwoSidedPart):
    """Says where a client's optimizer begins in a round."""

    active: ClassVar[bool] = True  # whether that is ever not at the received posterior

    @abstractmethod
    def begin(self, state: Arrays, received: Posterior, initial: Initial) -> Posterior:
        """Return where the optimizer begins."""


starts: Registry[Start] = Registry("start", "bfl.learning.starts")


@starts.register("initial-network")
class InitialNetworkStart(Start):
    """The network's own initial posterior until an update of the client has been pooled.

    Where the first global posterior is the prior, as in partitioned variational inference, its
    means are all 0: every unit of a layer is the same and none has a gradient. So a client begins
    with the network's initial Gaussians and the received point values. Once it has been pooled it
    begins with the received posterior.
    """

    state_name: ClassVar[str] = "start"
    always_requires: ClassVar[frozenset[str]] = frozenset({"sent-variances"})
    always_has: ClassVar[frozenset[str]] = frozenset({"start-elsewhere"})

    def begin_client(self, received: Posterior) -> Arrays:
        """Return that nothing of the client has been pooled yet."""
        return {"pooled": np.array(False)}

    def begin(self, state: Arrays, received: Posterior, initial: Initial) -> Posterior:
        """Return the received posterior, its Gaussians taken from where the client begins."""
        if state["pooled"]:
            return received
        first = initial()
        return Posterior(first.mean, first.variance, received.point)

    def conclude(self, state: Arrays, trained: Trained) -> tuple[Arrays, Arrays]:
        """Return nothing to send, and what says, once it is pooled, that the client has begun."""
        return {}, {"pooled": np.array(True)}


@starts.register("mean")
class MeanStart(Start):
    """The received mean with fresh variances: those of the network's initial posterior.

    In some hundred steps of Adam ρ moves little, so a pool by precisions is nearly an average; the
    round's ``log-precision-spread`` and ``distance-from-average`` say how nearly.

    Source: Yang et al. (2023), HBFL, Algorithm 1, ClientUpdate, lines 1 and 2.
    """

    always_requires: ClassVar[frozenset[str]] = frozenset({"gaussian"})
    always_has: ClassVar[frozenset[str]] = frozenset({"start-elsewhere"})

    def begin(self, state: Arrays, received: Posterior, initial: Initial) -> Posterior:
        """Return the received mean and points with the initial variances."""
        return Posterior(received.mean, initial().variance, received.point)


@starts.register("mean-own-variances", aliases=("mean-kept", "kept"))
class MeanOwnVariancesStart(MeanStart):
    """The received mean with the client's own variances: those of its last update that was pooled.

    Until there is one they are those of the network's initial posterior. It is the other reading of
    Algorithm 1, whose first line may stand before the first round or in each.

    Source: Yang et al. (2023), HBFL, Algorithm 1, ClientUpdate, line 1.
    """

    state_name: ClassVar[str] = "start"

    def excludes(self) -> frozenset[str]:
        """Return that a client's variances are those that it has sent."""
        return super().excludes() | {"corrupted-updates"}

    def begin(self, state: Arrays, received: Posterior, initial: Initial) -> Posterior:
        """Return the received mean and points with the client's variances."""
        variance = state["variance"] if state else initial().variance
        return Posterior(received.mean, variance, received.point)

    def conclude(self, state: Arrays, trained: Trained) -> tuple[Arrays, Arrays]:
        """Return nothing to send, and the trained variances."""
        return {}, {"variance": trained.sent.variance}


@starts.register("posterior", aliases=("received",))
class PosteriorStart(Start):
    """The received posterior.

    Source: Fischer et al. (2024), Algorithm 1.
    """

    active: ClassVar[bool] = False
    always_requires: ClassVar[frozenset[str]] = frozenset({"sent-variances"})

    def begin(self, state: Arrays, received: Posterior, initial: Initial) -> Posterior:
        """Return the received posterior."""
        return received
