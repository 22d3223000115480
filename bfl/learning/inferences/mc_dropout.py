"""Point weights under dropout that stays on when predicting."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from bfl.learning.inferences.base import Layer, Padding, inferences
from bfl.learning.inferences.deterministic import Deterministic


@inferences.register("mc-dropout", aliases=("monte-carlo-dropout",))
class MonteCarloDropout(Deterministic):
    """Point weights under dropout that stays on when predicting.

    Source: Gal and Ghahramani (2016); Fischer et al. (2024), section 3.2, Fig. 1 (b): a dropout
    layer after each convolutional and linear layer, enabled at inference. The only linear layer
    of a ResNet gives the logits; taken literally they are dropped out too. ``dropout-output`` =
    false leaves them alone.
    """

    predictor: ClassVar[str] = "mc-dropout"
    stochastic_prediction: ClassVar[bool] = True

    dropout_rate: float = Field(0.2, ge=0.0, lt=1.0, description="share of units dropped")
    dropout_output: bool = Field(True, description="whether the logits are dropped out as well")

    def _dropped(self, layer: Layer, name: str) -> Layer:
        from bfl.learning.networks.layers import KeyedDropout

        dropout = KeyedDropout(self.dropout_rate, name=f"{name}_dropout")
        return lambda inputs: dropout(layer(inputs))

    def convolution(
        self, filters: int, kernel_size: int, *, strides: int, name: str, padding: Padding = "same"
    ) -> Layer:
        """Return a convolution followed by dropout."""
        plain = super().convolution(
            filters, kernel_size, strides=strides, name=name, padding=padding
        )
        return self._dropped(plain, name)

    def depthwise_convolution(self, kernel_size: int, *, strides: int, name: str) -> Layer:
        """Return a depthwise convolution followed by dropout."""
        plain = super().depthwise_convolution(kernel_size, strides=strides, name=name)
        return self._dropped(plain, name)

    def dense(self, units: int, *, name: str, output: bool = False) -> Layer:
        """Return a dense layer followed by dropout."""
        plain = super().dense(units, name=name, output=output)
        return plain if output and not self.dropout_output else self._dropped(plain, name)
