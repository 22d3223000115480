"""All layers but the last travel."""

from __future__ import annotations

from collections.abc import Sequence

from bfl.learning.shared.base import PartlyShared, layer_of, shared_parameters
from bfl.posteriors.manifest import Parameter


@shared_parameters.register("body", aliases=("all-but-the-head",))
class Body(PartlyShared):
    """All layers but the last travel; that one, which gives the logits, is the client's own.

    Source: Arivazhagan et al. (2019), "Federated learning with personalization layers" (FedPer),
    Algorithm 1, with one personalization layer.
    """

    def travels(self, parameters: Sequence[Parameter]) -> tuple[bool, ...]:
        """Return which of them are not the last layer's."""
        return tuple(layer_of(p) != layer_of(parameters[-1]) for p in parameters)
