"""Data sets of the Hugging Face hub, through flwr-datasets."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.base import Dataset, ReadingSource, dataset_sources
from bfl.data.datasets.labels import numbered_classes
from bfl.data.datasets.paths import PathSource
from bfl.data.datasets.pictures import pixels_of, stacked
from bfl.data.datasets.reading import AS_STORED, PIXEL_RANGE, Reading
from bfl.data.images import Images, with_channels
from bfl.errors import ConfigurationError, DataError

LABEL_COLUMNS = ("label", "fine_label", "labels", "class", "target")
"""The label columns to prefer, when a data set has several (CIFAR-100 has coarse ones too)."""

TEST_SPLITS = ("test", "validation", "valid")
"""The splits to test on, in the order of preference."""

MISSING_LIBRARY = (
    "the Hugging Face hub needs the library flwr-datasets, which is not installed "
    "(pip install 'flwr-datasets[vision]')"
)


@dataset_sources.register("hf")
class Hub(ReadingSource):
    """A data set of the Hugging Face hub: ``hf:NAME``, or ``hf:NAME:SUBSET``.

    It needs a column of images, a column of labels (classes, whole numbers or words), a split
    ``train`` and a labelled split ``test`` (or ``validation``).
    """

    location_form: ClassVar[str] = "NAME[:SUBSET]"
    reads_keys: ClassVar[frozenset[str]] = frozenset({PIXEL_RANGE})

    def check_location(self, location: str, data_dir: Path | None) -> None:
        """Check that the library is there; the hub is not asked."""
        super().check_location(location, data_dir)
        if not library_installed():
            raise ConfigurationError(f"dataset 'hf:{location}': {MISSING_LIBRARY}")

    def on_this_machine(self, location: str, data_dir: Path | None) -> bool:
        """Return False: what the hub's cache holds is not known."""
        return False

    def reads_path(self, location: str) -> bool:
        """Return True, whatever the name.

        The library prefers a folder of that name to the hub, takes a word such as ``imagefolder``
        for a loader of what lies here, and reads the paths that a repository's own files name.
        """
        return True

    def load_in(self, reading: Reading, location: str, data_dir: Path | None) -> Dataset:
        """Return the data set of the hub, each image brought into its shape when it is read."""
        super().check_location(location, data_dir)
        repository, _, subset = location.partition(":")
        return load_from_hub(repository, subset or None, f"hf:{location}", reading)


@dataset_sources.register("disk")
class Disk(PathSource, ReadingSource):
    """A folder of ``datasets.DatasetDict.save_to_disk``: ``disk:PATH``.

    It needs what ``hf:NAME`` needs: a column of images, one of labels, and the splits ``train`` and
    ``test`` (or ``validation``).
    """

    is_folder: ClassVar[bool | None] = True
    reads_keys: ClassVar[frozenset[str]] = frozenset({PIXEL_RANGE})

    def load_in(self, reading: Reading, location: str, data_dir: Path | None) -> Dataset:
        """Return the data set of the folder, each image brought into its shape when it is read."""
        import datasets

        path = self.find(location, data_dir)
        try:
            found = datasets.load_from_disk(str(path))
        # The library and PyArrow have exceptions of their own, by what is damaged.
        except Exception as error:
            raise DataError(f"{path} is no folder of save_to_disk: {error}") from error
        tests = [split for split in TEST_SPLITS if split in found]
        if not isinstance(found, datasets.DatasetDict) or "train" not in found or not tests:
            raise DataError(f"{path} needs the splits train and {' or '.join(TEST_SPLITS)}")
        splits = {split: found[split] for split in ("train", *tests)}
        return of_splits(splits, str(path), f"{self.name}:{location}", reading)


def library_installed() -> bool:
    """Return whether flwr-datasets can be imported, without the seconds that importing it takes."""
    return importlib.util.find_spec("flwr_datasets") is not None


def load_from_hub(
    repository: str, subset: str | None, name: str, reading: Reading = AS_STORED
) -> Dataset:
    """Return a data set of the hub as arrays.

    Raises:
        DataError: The hub cannot be reached or has no such data set, or the data set has no
            images, labels or splits as needed.
    """
    return of_splits(open_splits(repository, subset), repository, name, reading)


def of_splits(splits: Mapping[str, Any], repository: str, name: str, reading: Reading) -> Dataset:
    """Return splits of the library ``datasets`` as arrays.

    Args:
        splits: ``train``, and those to test on, the first preferred.
        reading: The shape that its images get.

    Raises:
        DataError: They have no images or labels as needed.
    """
    train, test = (
        to_arrays(splits[name], f"{repository}, split {name}", reading)
        for name in ("train", _labelled(repository, splits))
    )
    if train.names != test.names:
        raise DataError(f"{repository}: the splits name different classes")
    try:
        given = {"train_labels": train.labels, "test_labels": test.labels}
        classes = numbered_classes(given, train.names)
    except DataError as error:
        raise DataError(f"{repository}: {error}") from error
    channels = max(train.images.shape[3], test.images.shape[3])
    train_labels, test_labels = classes.labels
    dataset = Dataset(
        name,
        # Some colour sets hold grey images: these get three equal channels.
        with_channels(train.images, channels),
        train_labels,
        with_channels(test.images, channels),
        test_labels,
        classes.names,
        numbered_here=classes.here,
        said=classes.notes,
    )
    dataset.check()
    return dataset


def _labelled(repository: str, splits: Mapping[str, Any]) -> str:
    """Return the first split to test on whose labels are not hidden, as by -1."""
    tests = [name for name in splits if name != "train"]
    for name in tests:
        _, column = find_columns(splits[name], f"{repository}, split {name}")
        if any(label not in (-1, None) for label in splits[name][column][:]):
            return name
    raise DataError(
        f"{repository}: test_labels holds the label -1 only, which is that of examples without "
        f"one, in {', '.join(tests)}; it takes a labelled split {' or '.join(TEST_SPLITS)}"
    )


def open_splits(repository: str, subset: str | None) -> dict[str, Any]:
    """Return the split ``train`` and those to test on (``datasets.Dataset``), the first preferred.

    Raises:
        DataError: The library is missing, the hub cannot be reached, or a split is missing.
    """
    try:
        from flwr_datasets import FederatedDataset
    except ImportError as error:
        raise DataError(f"{repository}: {MISSING_LIBRARY}") from error
    called = f"{repository} (subset {subset})" if subset else repository
    federated = FederatedDataset(dataset=repository, subset=subset, partitioners={}, shuffle=False)
    found = {}
    for split in ("train", *TEST_SPLITS):
        try:
            found[split] = federated.load_split(split)
        # A download passes through four libraries, each with exceptions of its own. There is no
        # such split, if it is a ValueError after that has succeeded.
        except Exception as error:
            if not (found and isinstance(error, ValueError)):
                raise DataError(
                    f"{called} cannot be had from the Hugging Face hub, split {split}: {error}"
                ) from error
    if len(found) == 1:
        raise DataError(f"{called} has no split to test on; tried {', '.join(TEST_SPLITS)}")
    return found


class Split(NamedTuple):
    """A split as arrays: images uint8 [N, H, W, C], labels [N], class names where it has some."""

    images: Images
    labels: npt.NDArray[Any]
    names: tuple[str, ...]


def to_arrays(split: Any, where: str, reading: Reading = AS_STORED) -> Split:
    """Return a split as arrays.

    Args:
        split: A ``datasets.Dataset`` with a column of images and one of labels.
        reading: The shape that its images get.

    Raises:
        DataError: A column is missing or ambiguous, images differ in size and get none, or an
            example has no label.
    """
    image_column, label_column = find_columns(split, where)
    if not len(split):
        raise DataError(f"{where}: no images")
    images = stacked(_opened(split, image_column, where, reading), len(split), reading)
    given = split[label_column][:]
    if any(label is None for label in given):
        raise DataError(f"{where}: column '{label_column}' has examples without a label")
    return Split(
        images, np.asarray(given), tuple(getattr(split.features[label_column], "names", ()))
    )


def find_columns(split: Any, where: str) -> tuple[str, str]:
    """Return the names of the image column and of the label column of a split.

    Raises:
        DataError: There is none, or several and none to prefer; the message lists the columns.
    """
    import datasets

    features = split.features
    image_columns = [name for name in features if isinstance(features[name], datasets.Image)]
    label_columns = [name for name in features if isinstance(features[name], datasets.ClassLabel)]
    if not label_columns:  # whole numbers or words, where the name says that they are labels
        values = [name for name in features if isinstance(features[name], datasets.Value)]
        label_columns = [name for name in LABEL_COLUMNS if name in values][:1]
    preferred = [name for name in LABEL_COLUMNS if name in label_columns][:1] or label_columns
    for kind, columns in (("image", image_columns), ("label", preferred)):
        if len(columns) != 1:
            listed = ", ".join(f"{name} ({type(features[name]).__name__})" for name in features)
            raise DataError(
                f"{where}: {len(columns)} {kind} columns where one is needed, an Image and a "
                f"ClassLabel, or a Value called {' or '.join(LABEL_COLUMNS)}; columns: {listed}"
            )
    return image_columns[0], preferred[0]


def _opened(split: Any, column: str, where: str, reading: Reading) -> Iterator[tuple[str, Images]]:
    for number in range(len(split)):
        name = f"{where}, image {number}"
        try:
            image = split[number][column]
            pixels = None if image is None else pixels_of(image, reading.pixel_range)
        # Pillow and its decoders have exceptions of their own, by what is damaged.
        except Exception as error:
            raise DataError(f"{name}: cannot be read: {error}") from error
        if pixels is None:
            raise DataError(f"{name}: there is no image")
        yield name, pixels
