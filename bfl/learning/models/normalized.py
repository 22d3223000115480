"""Base of networks with normalisation: its kind and settings."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from bfl.learning.models.scaled import ScaledInputs


class NormalizedNetwork(ScaledInputs):
    """A network whose convolutions are normalised, by batches or by groups of channels.

    Normalisation has point parameters in every inference: scales and offsets, and batch
    normalisation moving statistics as well. Group normalisation has none, works on each image by
    itself, and so is the same in training and in prediction.

    Source: Ioffe and Szegedy (2015); Wu and He (2018), for FL with unlike clients Hsieh et al.
    (2020) and FedBE (2021), appendix C.5, which does not say how many groups there are.
    """

    channels_divisor: ClassVar[int]
    """Divisor of the number of channels of all convolutions."""

    normalization: Literal["batch", "group"] = Field(
        "batch",
        description="what normalises a network's activations: batches, or groups of channels",
    )
    normalization_groups: int = Field(
        8, ge=1, description="number of groups of channels in group normalisation"
    )
    batch_norm_momentum: float = Field(
        0.9, ge=0.0, lt=1.0, description="momentum of batch normalisation's moving statistics"
    )

    def has(self) -> frozenset[str]:
        """Return whether batch normalisation keeps moving statistics, as well."""
        moving = {"moving-statistics"} if self.normalization == "batch" else set()
        return super().has() | moving

    @field_validator("normalization_groups")
    @classmethod
    def _divides_the_channels(cls, groups: int) -> int:
        divisors = [n for n in range(1, cls.channels_divisor + 1) if not cls.channels_divisor % n]
        if groups not in divisors:
            raise ValueError(
                f"a number that divides all channels of '{cls.name}': "
                f"{', '.join(map(str, divisors))}"
            )
        return groups

    def normalized(self, features: Any, name: str) -> Any:
        """Return normalised features; ``name`` is that of the layer that they come from."""
        from bfl.keras import keras

        if self.normalization == "group":
            # In float32 whatever the policy is: Keras adds up in the type of the activations.
            layer = keras.layers.GroupNormalization(
                self.normalization_groups, name=f"{name}_norm", dtype="float32"
            )
        else:
            layer = keras.layers.BatchNormalization(
                momentum=self.batch_norm_momentum, name=f"{name}_norm"
            )
        return layer(features)
