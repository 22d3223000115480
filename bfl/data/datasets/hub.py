"""Data sets of the Hugging Face hub, and those that its library ``datasets`` has saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.base import Dataset, DatasetSource, PathSource, dataset_sources
from bfl.data.datasets.labels import number_classes
from bfl.data.datasets.pictures import pixels_of, stack_images
from bfl.data.datasets.reading import AS_STORED, Reading
from bfl.data.images import Images, with_channels
from bfl.errors import DataError

LABEL_COLUMNS = ("label", "fine_label", "labels", "class", "target")
"""The label columns to prefer, when a data set has several (CIFAR-100 has coarse ones too)."""

TEST_SPLITS = ("test", "validation", "valid")
"""The splits to test on, in the order of preference."""


@dataset_sources.register("hf")
class Hub(DatasetSource):
    """A data set of the Hugging Face hub: ``hf:NAME``, or ``hf:NAME:SUBSET``.

    It needs a column of images, a column of labels (classes, whole numbers or words), a split
    ``train`` and a labelled split ``test`` (or ``validation``). Whatever the name, it is taken to
    read a path: the library prefers a folder of that name to the hub, takes a word such as
    ``imagefolder`` for a loader of what lies here, and reads paths that a repository names.
    """

    location_form: ClassVar[str] = "NAME[:SUBSET]"
    takes_pixel_range: ClassVar[bool] = True

    def on_this_machine(self, location: str, data_dir: Path | None) -> bool:
        """Return False: what the hub's cache holds is not known."""
        return False

    def load(self, location: str, data_dir: Path | None, reading: Reading) -> Dataset:
        """Return the data set of the hub, each image brought into its shape when it is read."""
        self.check_location(location, data_dir)
        repository, _, subset = location.partition(":")
        return load_from_hub(repository, subset or None, f"hf:{location}", reading)


@dataset_sources.register("disk")
class Disk(PathSource):
    """A folder of ``datasets.DatasetDict.save_to_disk``: ``disk:PATH``.

    It needs what ``hf:NAME`` needs: a column of images, one of labels, and the splits ``train`` and
    ``test`` (or ``validation``).
    """

    is_folder: ClassVar[bool | None] = True
    takes_pixel_range: ClassVar[bool] = True

    def load(self, location: str, data_dir: Path | None, reading: Reading) -> Dataset:
        """Return the data set of the folder, each image brought into its shape when it is read."""
        import datasets

        path = self.find(location, data_dir)
        try:
            splits = datasets.load_from_disk(str(path))
        # The library and PyArrow have exceptions of their own, by what is damaged.
        except Exception as error:
            raise DataError(f"{path} is no folder of save_to_disk: {error}") from error
        return _of_splits(splits, str(path), f"{self.name}:{location}", reading)


def load_from_hub(
    repository: str, subset: str | None, name: str, reading: Reading = AS_STORED
) -> Dataset:
    """Return a data set of the hub as arrays."""
    import datasets

    try:
        splits = datasets.load_dataset(path=repository, name=subset)
    # A download passes through four libraries, each with exceptions of its own.
    except Exception as error:
        called = f"{repository} (subset {subset})" if subset else repository
        raise DataError(f"{called} cannot be had from the Hugging Face hub: {error}") from error
    return _of_splits(splits, repository, name, reading)


def _of_splits(splits: Any, repository: str, name: str, reading: Reading) -> Dataset:
    """Return splits of ``datasets``; the first to test on counts whose labels are not hidden."""
    tests = [split for split in TEST_SPLITS if isinstance(splits, Mapping) and split in splits]
    if not tests or "train" not in splits:
        raise DataError(f"{repository} needs the splits train and {' or '.join(TEST_SPLITS)}")
    for test_split in tests:
        _, column = find_columns(splits[test_split], f"{repository}, split {test_split}")
        if any(label not in (-1, None) for label in splits[test_split][column][:]):
            break
    else:
        raise DataError(
            f"{repository}: test_labels holds the label -1 only, which is that of examples without "
            f"one, in {', '.join(tests)}; it takes a labelled split {' or '.join(TEST_SPLITS)}"
        )
    train, test = (
        to_arrays(splits[split], f"{repository}, split {split}", reading)
        for split in ("train", test_split)
    )
    if train.names != test.names:
        raise DataError(f"{repository}: the splits name different classes")
    try:
        given = {"train_labels": train.labels, "test_labels": test.labels}
        classes = number_classes(given, train.names)
    except DataError as error:
        raise DataError(f"{repository}: {error}") from error
    channels = max(train.images.shape[3], test.images.shape[3])
    dataset = Dataset(
        name,
        # Some colour sets hold grey images: these get three equal channels.
        with_channels(train.images, channels),
        classes.labels[0],
        with_channels(test.images, channels),
        classes.labels[1],
        classes.names,
        numbered_here=classes.here,
        said=classes.notes,
    )
    dataset.check()
    return dataset


class Split(NamedTuple):
    """A split's images [N, H, W, C], labels [N], and class names where it has some."""

    images: Images
    labels: npt.NDArray[Any]
    names: tuple[str, ...]


def to_arrays(split: Any, where: str, reading: Reading = AS_STORED) -> Split:
    """Return a split of ``datasets``, with a column of images and one of labels, as arrays."""
    image_column, label_column = find_columns(split, where)
    if not len(split):
        raise DataError(f"{where}: no images")

    def open_images() -> Iterator[tuple[str, Images]]:
        for number in range(len(split)):
            name = f"{where}, image {number}"
            try:
                image = split[number][image_column]
                pixels = None if image is None else pixels_of(image, reading.pixel_range)
            # Pillow and its decoders have exceptions of their own, by what is damaged.
            except Exception as error:
                raise DataError(f"{name}: cannot be read: {error}") from error
            if pixels is None:
                raise DataError(f"{name}: there is no image")
            yield name, pixels

    images = stack_images(open_images(), len(split), reading)
    given = split[label_column][:]
    if any(label is None for label in given):
        raise DataError(f"{where}: column '{label_column}' has examples without a label")
    return Split(
        images, np.asarray(given), tuple(getattr(split.features[label_column], "names", ()))
    )


def find_columns(split: Any, where: str) -> tuple[str, str]:
    """Return the names of the image column and of the label column of a split."""
    import datasets

    kinds = {name: type(feature) for name, feature in split.features.items()}
    images = [name for name, kind in kinds.items() if kind is datasets.Image]
    labels = [name for name, kind in kinds.items() if kind is datasets.ClassLabel]
    if not labels:  # whole numbers or words, where the name says that they are labels
        values = [name for name, kind in kinds.items() if kind is datasets.Value]
        labels = [name for name in LABEL_COLUMNS if name in values][:1]
    preferred = [name for name in LABEL_COLUMNS if name in labels][:1] or labels
    for what, columns in (("image", images), ("label", preferred)):
        if len(columns) != 1:
            listed = ", ".join(f"{name} ({kind.__name__})" for name, kind in kinds.items())
            raise DataError(
                f"{where}: {len(columns)} {what} columns where one is needed, an Image and a "
                f"ClassLabel, or a Value called {' or '.join(LABEL_COLUMNS)}; columns: {listed}"
            )
    return images[0], preferred[0]
