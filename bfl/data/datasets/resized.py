"""Another data set, its images resized."""

from __future__ import annotations

import re

from bfl.data.datasets.base import Images, dataset_sources
from bfl.data.datasets.transformed import TransformedSource
from bfl.data.images import resized, with_channels

_SIDE = "[1-9][0-9]{0,4}"


@dataset_sources.register("resized")
class Resized(TransformedSource):
    """Another data set, its images resized: ``resized:32:NAME``, ``resized:32x32x3:NAME``.

    One number is the height and width; a third one the number of channels, 1 or 3: grey images get
    three equal channels, colours their luminance. Pixels are means over areas in smaller images,
    and interpolated in larger ones.

    Source: FedBE (2021), appendix B.1: "we resize images of Tiny-ImageNet to 32×32"; it does not
    say how.
    """

    def size(self, word: str) -> tuple[int, ...]:
        """Return height and width, and the channels if they are given."""
        if not re.fullmatch(rf"{_SIDE}|{_SIDE}x{_SIDE}(x[13])?", word):
            raise ValueError(
                "a side, or height x width, or height x width x channels (1 or 3), as in "
                "'resized:32x32x3:mnist'"
            )
        numbers = tuple(int(number) for number in word.split("x"))
        return numbers if len(numbers) > 1 else numbers * 2

    def transform(self, images: Images, size: tuple[int, ...]) -> Images:
        """Return resized images with the channels that are asked for."""
        height, width, *channels = size
        for number in channels:
            images = with_channels(images, number)
        return resized(images, height, width)
