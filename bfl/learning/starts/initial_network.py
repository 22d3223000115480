"""A client's first training begins with the network's own initial posterior."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from bfl.federation.parts import Arrays, Trained
from bfl.learning.starts.base import Start, starts
from bfl.posteriors import Posterior


@starts.register("initial-network")
class InitialNetworkStart(Start):
    """The network's own initial posterior until an update of the client has been pooled.

    Where the first global posterior is the prior, as in partitioned variational inference, its
    means are all 0: every unit of a layer is the same and none has a gradient. So a client begins
    with the network's initial means and standard deviations, the same for all clients, and with the
    received point values, which have no prior.

    Once the client has been pooled it begins with the received posterior, which holds its own
    factor and those of all others. With ``start-afterwards`` = "own" it begins with the posterior
    that it sent last: where changes are damped, the received one has only a part of the
    certainty that the client has trained, which it would train again; but it is far from the
    received one where clients differ. Both have the same optimum.
    """

    state_name: ClassVar[str] = "start"

    start_afterwards: Literal["received", "own"] = Field(
        "received",
        description="where a client begins that has been pooled: the received posterior, or its "
        "own last one",
    )

    def has(self) -> frozenset[str]:
        """Return that training does not begin at what was received."""
        return frozenset({"start-elsewhere"})

    def requires(self) -> frozenset[str]:
        """Return that variances are received, for a client that has been pooled."""
        return frozenset({"sent-variances"})

    def excludes(self) -> frozenset[str]:
        """Return that a client whose own posterior comes again begins at what it has sent."""
        own = self.start_afterwards == "own"
        return frozenset({"corrupted-updates"}) if own else frozenset()

    def begin_client(self, received: Posterior) -> Arrays:
        """Return that nothing of the client has been pooled yet."""
        return {"pooled": np.array(False)}

    def begin(
        self, state: Arrays, received: Posterior, initial: Callable[[], Posterior]
    ) -> Posterior:
        """Return the received posterior, its Gaussians taken from where the client begins."""
        if not state["pooled"]:
            begun = initial()
            return Posterior(begun.mean, begun.variance, received.point)
        if self.start_afterwards == "own":
            return Posterior(state["mean"], state["variance"], received.point)
        return received

    def conclude(self, state: Arrays, trained: Trained) -> tuple[Arrays, Arrays]:
        """Return nothing to send, and what says, once it is pooled, that the client has begun."""
        if self.start_afterwards == "own":
            own = {"mean": trained.sent.mean, "variance": trained.sent.variance}
            return {}, {"pooled": np.array(True), **own}
        return {}, {"pooled": np.array(True)}
