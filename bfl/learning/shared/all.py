"""All parameters travel."""

from __future__ import annotations

from collections.abc import Sequence

from bfl.learning.shared.base import SharedParameters, shared_parameters
from bfl.posteriors.manifest import Parameter


@shared_parameters.register("all")
class AllShared(SharedParameters):
    """All parameters of the network travel, and its clients have the same classes.

    Source: McMahan et al. (2017), "Communication-efficient learning of deep networks from
    decentralized data", Algorithm 1.
    """

    def travels(self, parameters: Sequence[Parameter]) -> tuple[bool, ...]:
        """Return that all do."""
        return (True,) * len(parameters)
