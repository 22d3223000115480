"""Several data sets at once: which clients have which, each with classes of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from bfl.data.datasets.base import (
    Dataset,
    DatasetSource,
    Task,
    dataset_sources,
    source_and_location,
)
from bfl.data.datasets.reading import Reading
from bfl.data.images import Images, pad, with_channels
from bfl.errors import ConfigurationError, DataError

_ENTRY = re.compile(r"(.+?)(?::([0-9]+))?")


class _Entry(NamedTuple):
    source: DatasetSource
    rest: str
    clients: int | None

    def word(self, rest: str) -> str:
        return f"{self.source.name}:{rest}" if rest else self.source.name


@dataset_sources.register("tasks")
class Tasks(DatasetSource):
    """Data sets by numbers of clients: ``tasks:fashion-mnist:5,mnist:5``.

    The last one may have no number, for all clients that are left. Images get the height, width and
    channels of the largest: edges are repeated, grey images get three equal channels. The labels of
    one data set follow those of the one before; a client has those of its own alone, with a head of
    its own (``shared``).

    Source: Yang et al. (2023), HBFL, section 5, Fig. 7 and Table 4: CIFAR-10 and CIFAR-100, with
    the convolutions in common.
    """

    location_form: ClassVar[str] = "DATASET:CLIENTS,DATASET:CLIENTS"

    def load(self, location: str, data_dir: Path | None, reading: Reading) -> Dataset:
        """Return the data sets as one, each with images of a shape."""
        entries = self._entries(location)
        loaded = [
            reading.apply(source.load(rest, data_dir, reading)) for source, rest, _ in entries
        ]
        for dataset in loaded:
            dataset.check()
        firsts = np.cumsum([0, *(dataset.num_classes for dataset in loaded)]).tolist()
        tasks = tuple(
            Task(entry.word(entry.rest), first, dataset.num_classes, entry.clients)
            for entry, first, dataset in zip(entries, firsts, loaded, strict=False)
        )
        side = max(max(dataset.image_shape[:2]) for dataset in loaded)
        channels = max(dataset.image_shape[2] for dataset in loaded)

        def join(images: list[Images]) -> Images:
            return np.concatenate([pad(with_channels(part, channels), side) for part in images])

        try:
            train_images = join([d.train_images for d in loaded])
            test_images = join([d.test_images for d in loaded])
        except ValueError as error:
            raise DataError(f"dataset 'tasks:{location}': {error}") from error
        train_labels = [d.train_labels + first for d, first in zip(loaded, firsts, strict=False)]
        test_labels = [d.test_labels + first for d, first in zip(loaded, firsts, strict=False)]
        return Dataset(
            name=f"tasks:{location}",
            train_images=train_images,
            train_labels=np.concatenate(train_labels),
            test_images=test_images,
            test_labels=np.concatenate(test_labels),
            class_names=tuple(f"{d.name} {name}" for d in loaded for name in d.class_names),
            tasks=tasks,
            numbered_here="; ".join(d.numbered_here for d in loaded if d.numbered_here),
            said=tuple(line for d in loaded for line in d.said),
        )

    def parts(self, location: str) -> list[tuple[DatasetSource, str]]:
        """Return the sources of all data sets."""
        return [(source, rest) for source, rest, _ in self._entries(location)]

    def absolute(self, location: str, data_dir: Path | None) -> str:
        """Return the location with the data sets' words such that no folder matters."""
        return self._with_words(location, lambda source, rest: source.absolute(rest, data_dir))

    def portable(self, location: str) -> str:
        """Return the location with the data sets' words without where files lie."""
        return self._with_words(location, lambda source, rest: source.portable(rest))

    def _with_words(self, location: str, change: Callable[[DatasetSource, str], str]) -> str:
        words = [
            (entry.word(change(entry.source, entry.rest) if entry.rest else ""), entry.clients)
            for entry in self._entries(location)
        ]
        return ",".join(f"{word}:{count}" if count else word for word, count in words)

    def _entries(self, location: str) -> list[_Entry]:
        self.check_location(location, None)
        found: list[_Entry] = []
        for entry in location.split(","):
            match = _ENTRY.fullmatch(entry.strip())
            if match and match[2] != "0":
                count = int(match[2]) if match[2] else None
                found.append(_Entry(*source_and_location(match[1]), count))
        counted = all(entry.clients is not None for entry in found[:-1])
        if len(found) < max(2, location.count(",") + 1) or not counted:
            raise ConfigurationError(
                f"dataset 'tasks:{location}': write it as 'tasks:{self.location_form}', two data "
                "sets or more; the last alone may have no number, for all that are left"
            )
        return found
