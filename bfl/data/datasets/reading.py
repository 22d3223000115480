"""Keys that say how a run's data sets are read, such as the shape that images get."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bfl.data.datasets.encoding import Encoding
from bfl.data.images import Images, pad, resize, with_channels
from bfl.errors import ConfigurationError, DataError
from bfl.registry import kebab

if TYPE_CHECKING:
    from bfl.data.datasets.base import Dataset

TARGET, LEFT_OUT, COLUMNS = "target", "columns-left-out", "table-columns"
PIXEL_RANGE = "pixel-range"
"""Configuration keys that messages name."""

SUMMED = "summed"
"""Value of ``table-columns`` in what nodes are asked before the first round: sums are to come."""


@dataclass(frozen=True)
class Reading:
    """Keys by which a run reads its data sets: ``image_size`` is ``image-size``.

    Source: FedBE (2021), appendix B.1, resizes Tiny-ImageNet to 32 x 32, and does not say how; the
    code of federated mutual learning (Shen et al. 2020) pads MNIST to 32 x 32.

    Attributes:
        encoding: What a table's columns become; None: by its own training rows.
    """

    image_size: int = 0
    image_channels: int = 0
    image_fit: str = "resize"
    test_share: float = 0.2
    test_sites: str = ""
    target: str = ""
    columns_left_out: str = ""
    task: str = "classification"
    encoding: Encoding | None = None
    pixel_range: str = ""
    missing: str = "refuse"
    table_columns: str = ""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Reading:
        """Return what flat keys and values say, of which some may be missing."""
        given = {n: values[kebab(n)] for n in vars(AS_STORED) if kebab(n) in values}
        return cls(**{name: type(getattr(AS_STORED, name))(of) for name, of in given.items()})

    def values(self) -> dict[str, str | int | float]:
        """Return the flat keys and values; none of what is as it is by default."""
        changed = {n: v for n, v in vars(self).items() if v != getattr(AS_STORED, n)}
        return {kebab(name): value for name, value in changed.items() if name != "encoding"}

    @property
    def regression(self) -> bool:
        """True if a table's target is a number."""
        return self.task == "regression"

    @property
    def left_out(self) -> list[str]:
        """The names of the columns that are no inputs."""
        return [name.strip() for name in self.columns_left_out.split(",") if name.strip()]

    def images(self, images: Images) -> Images:
        """Return images in the run's shape; a ValueError if they cannot be had in it."""
        if self.image_channels:
            images = with_channels(images, self.image_channels)
        if not self.image_size:
            return images
        if self.image_fit == "pad":
            return pad(images, self.image_size)
        return resize(images, self.image_size, self.image_size)

    def apply(self, dataset: Dataset) -> Dataset:
        """Return a data set with images of the run's shape; a table stays as it is."""
        if dataset.encoding or not (self.image_size or self.image_channels):
            return dataset
        try:
            train, test = map(self.images, (dataset.train_images, dataset.test_images))
        except ValueError as error:
            given = ", ".join(f"{key} {value}" for key, value in self.values().items())
            raise DataError(f"dataset '{dataset.name}' with {given}: {error}") from error
        return dataclasses.replace(dataset, train_images=train, test_images=test)

    def stack(self, images: Iterable[tuple[str, Images]]) -> Images:
        """Return images [H, W, C], given with their names, in the run's shape [N, H, W, C]."""
        found: list[Images] = []
        for name, image in images:
            try:
                found.append(self.images(image[np.newaxis])[0])
            except ValueError as error:
                raise DataError(f"{name}: {error}") from error
            if found[-1].shape[:2] != found[0].shape[:2]:
                one, other = (" x ".join(map(str, found[i].shape[:2])) for i in (-1, 0))
                raise DataError(
                    f"{name} is {one} and others {other} (height x width); images of several "
                    "sizes need the key image-size"
                )
        channels = max(image.shape[2] for image in found)
        dtype = np.result_type(*{image.dtype for image in found})
        array = np.empty((len(found), *found[0].shape[:2], channels), dtype)
        for place, image in enumerate(found):
            array[place] = with_channels(image, channels)
        return array


AS_STORED = Reading()
"""By defaults: images as their source has them."""


def match_shape(dataset: Dataset, images: Images, what: str) -> Images:
    """Return images [N, H, W, C] in the size and channels of a data set's."""
    height, width, channels = dataset.image_shape
    try:
        return resize(with_channels(images, channels), height, width)
    except ValueError:
        raise ConfigurationError(
            f"{what} has images of {images.shape[3]} channels, and the run's have {channels}; "
            "allowed: as many, or grey for colour (1 and 3)"
        ) from None
