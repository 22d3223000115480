"""Bases of model architectures: their names, inputs in a range, and normalisation."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from bfl.errors import ConfigurationError, unknown_name
from bfl.learning.inferences import Inference
from bfl.registry import Component, Registry
from bfl.texts import numbers


class Architecture(Component):
    """A family of networks: how layers are put together, whatever their weights are."""

    minimum_side: ClassVar[int] = 1  # the smallest height and width of an image that it takes

    @property
    def compilable(self) -> bool:
        """True if XLA can compile a training step of it, deterministically."""
        return True

    @property
    def convolutional(self) -> bool:
        """True if layers come before its first dense one; a test compares with what is built."""
        return True

    def has(self) -> frozenset[str]:
        """Return whether clients can share its convolutions."""
        return frozenset({"convolutions"} if self.convolutional else ())

    @abstractmethod
    def build(self, inference: Inference, image_shape: tuple[int, int, int], classes: int) -> Any:
        """Return a Keras model from images (N, H, W, C) in [−1, 1] to logits (N, classes).

        Its layers are called without AutoGraph.
        """


class Architectures(Registry[Architecture]):
    """The architectures by their words: digits at the end of one are the family's ``depth``."""

    def create(self, spelling: str, settings: Mapping[str, Any] | None = None) -> Architecture:
        """Return the architecture of a word; the digits of a name such as "cnn1" are a part of it.

        Errors are those of any registry.
        """
        match = re.fullmatch(r"(.*?[a-z])-?(\d+)", spelling.strip().lower())
        if not match or spelling in self:
            return super().create(spelling, settings)
        if match[1] not in self:
            deep = {s for s in self.spellings() if "depth" in self.get(s).model_fields}
            spellings = [f"{s}{match[2]}" if s in deep else s for s in self.spellings()]
            raise ConfigurationError(unknown_name("model", spelling, spellings))
        if "depth" not in self.get(match[1]).model_fields:
            raise ConfigurationError(f"model '{spelling}': '{match[1]}' comes in one depth only")
        return super().create(match[1], {**(settings or {}), "depth": int(match[2])})


architectures = Architectures("model", "bfl.learning.models")


class ScaledInputs(Architecture):
    """A network whose first layer brings images in [−1, 1] into the range that it is trained in.

    With v in [0, 1] a channel's values, "channels" gives (v − m) / s with its m of
    ``channel-means`` and its s of ``channel-deviations``.

    Source: ``torchvision.transforms.Normalize`` for "channels", as in FedBE's published code; the
    code of Ozer et al. (2022) for "unit".
    """

    input_range: Literal["symmetric", "unit", "channels"] = "symmetric"
    """whether the first layer takes images in [-1, 1], in [0, 1], or with each channel normalised
    by channel-means and channel-deviations"""
    channel_means: str = ""
    """means of an image's channels, of values in [0, 1]; with commas, or one for all (input-range
    channels)"""
    channel_deviations: str = Field("", validate_default=True)  # given or not, to go with both
    """standard deviations of an image's channels, in the same form"""

    @field_validator("channel_means")
    @classmethod
    def _are_means(cls, text: str) -> str:
        means = numbers(text)
        if text and not (means and all(0 <= mean <= 1 for mean in means)):
            raise ValueError('numbers in [0, 1], as in "0.4914,0.4822,0.4465"')
        return text

    @field_validator("channel_deviations")
    @classmethod
    def _are_deviations(cls, text: str, info: ValidationInfo) -> str:
        means, chosen = info.data.get("channel_means", ""), info.data.get("input_range")
        deviations = numbers(text)
        if text and not (deviations and min(deviations) > 0):
            raise ValueError('numbers greater than 0, as in "0.2023,0.1994,0.2010"')
        if chosen == "channels" and not (means and text):
            raise ValueError(
                "numbers, and so channel-means, as input-range is 'channels'; those of CIFAR-10 "
                'are channel-means="0.4914,0.4822,0.4465" '
                'channel-deviations="0.2023,0.1994,0.2010"'
            )
        if chosen not in (None, "channels") and (means or text):
            raise ValueError(f"not given, nor channel-means, where input-range is '{chosen}'")
        if len(deviations) != len(numbers(means)):
            raise ValueError(f"as many numbers as channel-means has ({means!r})")
        return text

    def scale_inputs(self, images: Any) -> Any:
        """Return what the first layer takes, of a symbolic tensor of images in [−1, 1]."""
        from bfl.keras import keras

        if self.input_range == "symmetric":
            return images
        if self.input_range == "unit":
            return keras.layers.Rescaling(0.5, offset=0.5, name="unit")(images)
        means, deviations = numbers(self.channel_means), numbers(self.channel_deviations)
        if len(means) not in (1, images.shape[-1]):
            raise ConfigurationError(
                f"channel-means is '{self.channel_means}', of {len(means)} channels, and the "
                f"images have {images.shape[-1]}; allowed: one number, or one for each channel"
            )
        factors = [0.5 / deviation for deviation in deviations]
        offsets = [(0.5 - m) / s for m, s in zip(means, deviations, strict=True)]
        return keras.layers.Rescaling(factors, offset=offsets, name="channels")(images)


class NormalizedNetwork(ScaledInputs):
    """A network whose convolutions are normalised, by batches or by groups of channels.

    Scales, offsets and batch normalisation's moving statistics, of momentum 0.9, are points. Group
    normalisation, by 8 groups, has no statistics, works on each image by itself, and so is the same
    in training and in prediction.

    Source: Ioffe and Szegedy (2015); Wu and He (2018), for FL with unlike clients Hsieh et al.
    (2020) and FedBE (2021), appendix C.5, which does not say how many groups there are.
    """

    normalization: Literal["batch", "group"] = "batch"
    """what normalises a network's activations: batches, or groups of channels"""

    def has(self) -> frozenset[str]:
        """Return whether normalisation keeps moving statistics, as well."""
        return super().has() | ({"moving-statistics"} if self.normalization == "batch" else set())

    def normalize(self, features: Any, name: str) -> Any:
        """Return normalised features; ``name`` is that of the layer that they come from."""
        from bfl.keras import keras

        if self.normalization == "batch":
            return keras.layers.BatchNormalization(momentum=0.9, name=f"{name}_norm")(features)
        # In float32 whatever the policy is: Keras adds up in the type of the activations.
        layer = keras.layers.GroupNormalization(8, name=f"{name}_norm", dtype="float32")
        return layer(features)
