"""Base of networks whose first layer takes images in a range that a setting names."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from bfl.errors import ConfigurationError
from bfl.learning.models.base import Architecture


def _numbers(text: str) -> list[float]:
    """Return the numbers of a text with commas; none of one that has something else as well."""
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError:
        return []
    return found if all(map(math.isfinite, found)) else []


class ScaledInputs(Architecture):
    """A network that first brings its images, in [−1, 1], into the range that it is trained in.

    That is a layer of it: whoever has the network gives it the same images, whatever the range.
    With v in [0, 1] a channel's values, "channels" gives (v − m) / s with its m of
    ``channel-means`` and its s of ``channel-deviations``.

    Source: ``torchvision.transforms.Normalize`` for "channels", as in FedBE's published code; the
    code of Ozer et al. (2022) for "unit".
    """

    input_range: Literal["symmetric", "unit", "channels"] = Field(
        "symmetric",
        description="whether the first layer takes images in [-1, 1], in [0, 1], or with each "
        "channel normalised by channel-means and channel-deviations",
    )
    channel_means: str = Field(
        "",
        description="means of an image's channels, of values in [0, 1]; with commas, or one for "
        "all (input-range channels)",
    )
    channel_deviations: str = Field(
        "",
        validate_default=True,  # given or not, it is to go with the other two
        description="standard deviations of an image's channels, in the same form",
    )

    @field_validator("channel_means")
    @classmethod
    def _are_means(cls, text: str) -> str:
        numbers = _numbers(text)
        if text and not (numbers and all(0 <= mean <= 1 for mean in numbers)):
            raise ValueError('numbers in [0, 1], as in "0.4914,0.4822,0.4465"')
        return text

    @field_validator("channel_deviations")
    @classmethod
    def _are_deviations(cls, text: str, info: ValidationInfo) -> str:
        means, chosen = info.data.get("channel_means", ""), info.data.get("input_range")
        numbers = _numbers(text)
        if text and not (numbers and min(numbers) > 0):
            raise ValueError('numbers greater than 0, as in "0.2023,0.1994,0.2010"')
        if chosen == "channels" and not (means and text):
            raise ValueError(
                "numbers, and so channel-means, as input-range is 'channels'; those of CIFAR-10 "
                'are channel-means="0.4914,0.4822,0.4465" '
                'channel-deviations="0.2023,0.1994,0.2010"'
            )
        if chosen not in (None, "channels") and (means or text):
            raise ValueError(f"not given, nor channel-means, where input-range is '{chosen}'")
        if len(numbers) != len(_numbers(means)):
            raise ValueError(f"as many numbers as channel-means has ({means!r})")
        return text

    def scaled(self, images: Any) -> Any:
        """Return what the first layer takes, of a symbolic tensor of images in [−1, 1].

        Raises:
            ConfigurationError: The images have another number of channels than there are means.
        """
        from bfl.keras import keras

        if self.input_range == "symmetric":
            return images
        if self.input_range == "unit":
            return keras.layers.Rescaling(0.5, offset=0.5, name="unit")(images)
        means, deviations = _numbers(self.channel_means), _numbers(self.channel_deviations)
        if len(means) not in (1, images.shape[-1]):
            raise ConfigurationError(
                f"channel-means is '{self.channel_means}', of {len(means)} channels, and the "
                f"images have {images.shape[-1]}; allowed: one number, or one for each channel"
            )
        factors = [0.5 / deviation for deviation in deviations]
        offsets = [(0.5 - m) / s for m, s in zip(means, deviations, strict=True)]
        return keras.layers.Rescaling(factors, offset=offsets, name="channels")(images)
