"""Several data sets at once: which clients have which, each with classes of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import numpy as np

from bfl.data.datasets.base import (
    Dataset,
    DatasetSource,
    Labels,
    ReadingSource,
    Task,
    dataset_sources,
    source_and_location,
)
from bfl.data.datasets.reading import Reading
from bfl.data.images import Images, check_fits, padded, with_channels
from bfl.errors import ConfigurationError, DataError

_ENTRY = re.compile(r"(.+?)(?::([0-9]+))?")
Entry = tuple[str, int | None]


@dataset_sources.register("tasks")
class Tasks(ReadingSource):
    """Data sets by numbers of clients: ``tasks:fashion-mnist:5,mnist:5``.

    The last one may have no number, for all clients that are left. Images get the height, width and
    channels of the largest: edges are repeated, grey images get three equal channels. The labels of
    one data set follow those of the one before; a client has those of its own alone, with a head of
    its own (``shared``).

    Source: Yang et al. (2023), HBFL, section 5, Fig. 7 and Table 4: CIFAR-10 and CIFAR-100, with
    the convolutions in common.
    """

    location_form: ClassVar[str] = "DATASET:CLIENTS,DATASET:CLIENTS"

    def check_location(self, location: str, data_dir: Path | None) -> None:
        """Check the numbers, and what the data sets check."""
        for source, rest, _ in self._sources(location, data_dir):
            source.check_location(rest, data_dir)

    def on_this_machine(self, location: str, data_dir: Path | None) -> bool:
        """Return whether all data sets lie here."""
        sources = self._sources(location, data_dir)
        return all(source.on_this_machine(rest, data_dir) for source, rest, _ in sources)

    def absolute(self, location: str, data_dir: Path | None) -> str:
        """Return the location with the data sets' words such that no folder matters."""
        return _joined(
            (_word(source, source.absolute(rest, data_dir) if rest else ""), count)
            for source, rest, count in self._sources(location, data_dir)
        )

    def portable(self, location: str) -> str:
        """Return the location with the data sets' words without where files lie."""
        return _joined(
            (_word(source, source.portable(rest) if rest else ""), count)
            for source, rest, count in self._sources(location, None)
        )

    def files(self, location: str, data_dir: Path | None) -> tuple[Path, ...]:
        """Return the files of all data sets."""
        sources = self._sources(location, data_dir)
        return tuple(path for source, rest, _ in sources for path in source.files(rest, data_dir))

    def reads_path(self, location: str) -> bool:
        """Return whether the word of any data set names one."""
        return any(source.reads_path(rest) for source, rest, _ in self._sources(location, None))

    def load_in(self, reading: Reading, location: str, data_dir: Path | None) -> Dataset:
        """Return the data sets as one, each with images of a shape."""
        sources = self._sources(location, data_dir)
        loaded = [source.load_in(reading, rest, data_dir) for source, rest, _ in sources]
        tasks: list[Task] = []
        for (source, rest, count), dataset in zip(sources, loaded, strict=True):
            first = tasks[-1].first_class + tasks[-1].num_classes if tasks else 0
            tasks.append(Task(_word(source, rest), first, dataset.num_classes, count))
        side = max(max(dataset.image_shape[:2]) for dataset in loaded)
        channels = max(dataset.image_shape[2] for dataset in loaded)

        def images(split: str) -> Images:
            parts = [getattr(dataset, f"{split}_images") for dataset in loaded]
            return np.concatenate([_of_one_shape(part, side, channels) for part in parts])

        def labels(split: str) -> Labels:
            parts = [getattr(dataset, f"{split}_labels") for dataset in loaded]
            return np.concatenate(
                [part + t.first_class for part, t in zip(parts, tasks, strict=True)]
            )

        try:
            every = sum(len(d.train_labels) + len(d.test_labels) for d in loaded)
            check_fits(every, (side, side, channels))
            return Dataset(
                name=f"{self.name}:{location}",
                train_images=images("train"),
                train_labels=labels("train"),
                test_images=images("test"),
                test_labels=labels("test"),
                class_names=tuple(f"{d.name} {name}" for d in loaded for name in d.class_names),
                tasks=tuple(tasks),
                numbered_here="; ".join(d.numbered_here for d in loaded if d.numbered_here),
            )
        except ValueError as error:
            raise DataError(f"dataset '{self.name}:{location}': {error}") from error

    def _sources(
        self, location: str, data_dir: Path | None
    ) -> list[tuple[DatasetSource, str, int | None]]:
        """Return each data set's source, what stands behind its colon, and its number of clients.

        Raises:
            ConfigurationError: There is no such source, or the numbers are none.
        """
        super().check_location(location, data_dir)
        found: list[tuple[DatasetSource, str, int | None]] = []
        for entry in location.split(","):
            match = _ENTRY.fullmatch(entry.strip())
            if not match or match[2] == "0":
                self._refuse(location)
            assert match
            count = int(match[2]) if match[2] else None
            found.append((*source_and_location(match[1]), count))
        if len(found) < 2 or any(count is None for _, _, count in found[:-1]):
            self._refuse(location)
        return found

    def _refuse(self, location: str) -> None:
        raise ConfigurationError(
            f"dataset '{self.name}:{location}': write it as '{self.name}:{self.location_form}' in "
            "the key 'dataset', with two data sets or more and how many clients have each; the "
            "last one may have no number, for all that are left"
        )


def _word(source: DatasetSource, rest: str) -> str:
    return f"{source.name}:{rest}" if rest else source.name


def _joined(entries: Iterable[Entry]) -> str:
    return ",".join(f"{word}:{count}" if count else word for word, count in entries)


def _of_one_shape(images: Images, side: int, channels: int) -> Images:
    """Return images of a side and channels.

    Raises:
        ValueError: They have channels that cannot become so many.
    """
    if images.shape[3] != channels:
        images = with_channels(images, channels)
    return padded(images, side)
