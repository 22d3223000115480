"""Another data set, its images padded."""

from __future__ import annotations

import re

from bfl.data.datasets.base import Images, dataset_sources
from bfl.data.datasets.transformed import TransformedSource
from bfl.data.images import padded


@dataset_sources.register("padded")
class Padded(TransformedSource):
    """Another data set, its edges repeated up to SIDE x SIDE pixels: ``padded:32:mnist``.

    Source: the code of federated mutual learning (Shen et al. 2020), whose networks for images of
    32 x 32 pixels HBFL (2023) uses on MNIST as well.
    """

    def size(self, word: str) -> tuple[int, ...]:
        """Return the side, twice."""
        if not re.fullmatch(r"[1-9][0-9]{0,4}", word):
            raise ValueError("a side in pixels, as in 'padded:32:mnist'")
        return (int(word), int(word))

    def transform(self, images: Images, size: tuple[int, ...]) -> Images:
        """Return padded images."""
        return padded(images, size[0])
