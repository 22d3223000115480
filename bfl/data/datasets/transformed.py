"""Data sets that are another one with changed images: padded or resized."""

from __future__ import annotations

import dataclasses
import re
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

from bfl.data.datasets.base import (
    Dataset,
    DatasetSource,
    Images,
    dataset_sources,
    source_and_location,
)
from bfl.data.images import check_fits, padded, resized, with_channels
from bfl.errors import ConfigurationError, DataError


class TransformedSource(DatasetSource):
    """Another data set with other images: ``NAME:SIZE:DATASET``; labels and classes stay."""

    location_form: ClassVar[str] = "SIZE:DATASET"

    @abstractmethod
    def transform(self, images: Images, size: tuple[int, ...]) -> Images:
        """Return other images.

        Args:
            images: uint8 [N, H, W, C].
            size: The numbers of SIZE.

        Raises:
            ValueError: These images cannot be had in that size.
        """

    @abstractmethod
    def size(self, word: str) -> tuple[int, ...]:
        """Return the numbers of SIZE.

        Raises:
            ValueError: It is no size; the message says what is one.
        """

    def check_location(self, location: str, data_dir: Path | None) -> None:
        """Check the size, and what the other data set checks."""
        source, rest, _ = self._other(location, data_dir)
        source.check_location(rest, data_dir)

    def on_this_machine(self, location: str, data_dir: Path | None) -> bool:
        """Return whether the other data set lies here."""
        source, rest, _ = self._other(location, data_dir)
        return source.on_this_machine(rest, data_dir)

    def absolute(self, location: str, data_dir: Path | None) -> str:
        """Return the location with the other data set's word such that no folder matters."""
        source, rest, _ = self._other(location, data_dir)
        behind_colon = f":{source.absolute(rest, data_dir)}" if rest else ""
        return f"{location.partition(':')[0]}:{source.name}{behind_colon}"

    def portable(self, location: str) -> str:
        """Return the location with the other data set's word without where a file lies."""
        source, rest, _ = self._other(location, None)
        behind_colon = f":{source.portable(rest)}" if rest else ""
        return f"{location.partition(':')[0]}:{source.name}{behind_colon}"

    def files(self, location: str, data_dir: Path | None) -> tuple[Path, ...]:
        """Return the other data set's files."""
        source, rest, _ = self._other(location, data_dir)
        return source.files(rest, data_dir)

    def reads_path(self, location: str) -> bool:
        """Return whether the other data set's word names one."""
        source, rest, _ = self._other(location, None)
        return source.reads_path(rest)

    def load(self, location: str, data_dir: Path | None) -> Dataset:
        """Return the other data set with images of that size."""
        source, rest, size = self._other(location, data_dir)
        dataset = source.load(rest, data_dir)
        height, width, *channels = size
        try:
            shape = (height, width, *(channels or dataset.image_shape[2:]))
            check_fits(len(dataset.train_labels) + len(dataset.test_labels), shape)
            return dataclasses.replace(
                dataset,
                name=f"{self.name}:{location}",
                train_images=self.transform(dataset.train_images, size),
                test_images=self.transform(dataset.test_images, size),
            )
        except ValueError as error:
            raise DataError(f"dataset '{self.name}:{location}': {error}") from error

    def _other(
        self, location: str, data_dir: Path | None
    ) -> tuple[DatasetSource, str, tuple[int, ...]]:
        """Return the other data set's source, what stands behind its colon, and the size.

        Raises:
            ConfigurationError: There is no such source, or no size.
        """
        super().check_location(location, data_dir)
        word, _, other = location.partition(":")
        try:
            size = self.size(word.strip())
        except ValueError as error:
            raise ConfigurationError(
                f"dataset '{self.name}:{location}': write it as '{self.name}:{self.location_form}' "
                f"in the key 'dataset', with {error}"
            ) from error
        return *source_and_location(other), size


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
