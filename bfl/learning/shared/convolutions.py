"""The layers before the first dense one travel."""

from __future__ import annotations

from collections.abc import Sequence

from bfl.learning.shared.base import PartlyShared, layer_of, shared_parameters
from bfl.posteriors.manifest import Parameter


@shared_parameters.register("convolutions")
class Convolutions(PartlyShared):
    """The layers before the first dense one travel; the dense ones are the client's own.

    Of a model without convolutions that is nothing, which is refused.

    Source: Yang et al. (2023), HBFL, section 5, on Fig. 7: "we use the joint convolution layers as
    global model. When clients receive the global model, the FC layers are spliced on it"; after
    Shen et al. (2020), "Federated mutual learning".
    """

    def requires(self) -> frozenset[str]:
        """Return that there is something to share, as well."""
        return super().requires() | {"convolutions"}

    def travels(self, parameters: Sequence[Parameter]) -> tuple[bool, ...]:
        """Return which of them come before the first dense layer."""
        dense = [
            layer_of(p) for p in parameters if p.name.endswith("/kernel") and len(p.shape) == 2
        ]
        layers = list(dict.fromkeys(layer_of(parameter) for parameter in parameters))
        before = set(layers[: layers.index(dense[0])] if dense else layers)
        return tuple(layer_of(parameter) in before for parameter in parameters)
