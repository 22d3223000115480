"""A client's head: the part of its network that stays on it where not all of it travels."""

from __future__ import annotations

from bfl.posteriors import Posterior
from bfl.posteriors.posterior import VECTORS
from clients.local_round import LocalRound, Option


class KeepsHead(Option):
    """The part of the client's network that is never sent: as it was kept, or as it begins."""

    def prepare(self, local: LocalRound) -> None:
        """Put the head that was kept, or that the network begins with, to what was received."""
        shared, network = local.configuration.shared, local.network
        self._division = division = shared.division(network.manifest)
        state = local.states.of_part(shared)
        own = (
            Posterior(**{name: state[name] for name in VECTORS})
            if state
            else division.head_of(network.initial_posterior(local.configuration.keys.seed))
        )
        local.received = division.joined(local.from_server, own)
        local.manifest = division.shared

    def conclude(self, local: LocalRound) -> None:
        """Send the rest of what was learnt, and keep the head."""
        learnt = local.sent
        local.sent = self._division.shared_of(learnt)
        local.concluded["head"] = self._division.head_of(learnt).vectors()
