"""Data sets of the Hugging Face hub, through flwr-datasets."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bfl.data.datasets.base import Dataset, DatasetSource, Images, Labels, dataset_sources
from bfl.errors import ConfigurationError, DataError

LABEL_COLUMNS = ("label", "fine_label")
"""The label columns to prefer, when a data set has several (CIFAR-100 has coarse ones too)."""

TEST_SPLITS = ("test", "validation", "valid")
"""The splits to test on, in the order of preference."""

MISSING_LIBRARY = (
    "the Hugging Face hub needs the library flwr-datasets, which is not installed "
    "(pip install 'flwr-datasets[vision]')"
)


@dataset_sources.register("hf")
class Hub(DatasetSource):
    """A data set of the Hugging Face hub: ``hf:NAME``, or ``hf:NAME:SUBSET``.

    It needs a column of images of one size, a column of class labels, a split ``train`` and a
    split ``test`` (or ``validation``).
    """

    location_form: ClassVar[str] = "NAME[:SUBSET]"

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

    def load(self, location: str, data_dir: Path | None) -> Dataset:
        """Return the data set of the hub."""
        super().check_location(location, data_dir)
        repository, _, subset = location.partition(":")
        return load_from_hub(repository, subset or None, f"hf:{location}")


def library_installed() -> bool:
    """Return whether flwr-datasets can be imported, without the seconds that importing it takes."""
    return importlib.util.find_spec("flwr_datasets") is not None


def load_from_hub(repository: str, subset: str | None, name: str) -> Dataset:
    """Return a data set of the hub as arrays.

    Args:
        repository: The data set's name on the hub.
        subset: Its subset, where it has several.
        name: The data set's name here.

    Raises:
        DataError: The hub cannot be reached or has no such data set, or the data set has no
            images, labels or splits as needed.
    """
    train, test = open_splits(repository, subset)
    train_images, train_labels, class_names = to_arrays(train, f"{repository}, split train")
    test_images, test_labels, test_class_names = to_arrays(test, f"{repository}, test split")
    if class_names != test_class_names:
        raise DataError(f"{repository}: the splits name different classes")
    dataset = Dataset(name, train_images, train_labels, test_images, test_labels, class_names)
    dataset.check()
    return dataset


def open_splits(repository: str, subset: str | None) -> tuple[Any, Any]:
    """Return the train and test splits (``datasets.Dataset``) of a data set of the hub.

    Raises:
        DataError: The library is missing, the hub cannot be reached, or a split is missing.
    """
    try:
        from flwr_datasets import FederatedDataset
    except ImportError as error:
        raise DataError(f"{repository}: {MISSING_LIBRARY}") from error
    called = f"{repository} (subset {subset})" if subset else repository
    federated = FederatedDataset(dataset=repository, subset=subset, partitioners={}, shuffle=False)
    try:
        train = federated.load_split("train")
    # A download passes through four libraries, each with exceptions of its own.
    except Exception as error:
        raise DataError(f"{called} cannot be had from the Hugging Face hub: {error}") from error
    for split in TEST_SPLITS:
        try:
            return train, federated.load_split(split)
        except ValueError:  # there is no such split; the download itself has succeeded above
            continue
    raise DataError(f"{called} has no split to test on; tried {', '.join(TEST_SPLITS)}")


def to_arrays(split: Any, where: str) -> tuple[Images, Labels, tuple[str, ...]]:
    """Return images uint8 [N, H, W, C], labels int64 [N] and class names of a split.

    Args:
        split: A ``datasets.Dataset`` with a column of images and one of class labels.
        where: What it is, for messages.

    Raises:
        DataError: A column is missing or ambiguous, images differ in size or are not of 8 bits,
            or an example has no label.
    """
    image_column, label_column = find_columns(split, where)
    images = _stack(split, image_column, where)
    labels = np.asarray(split[label_column][:])
    if labels.dtype.kind != "i":
        raise DataError(f"{where}: column '{label_column}' has examples without a label")
    class_names = tuple(split.features[label_column].names)
    return images, labels.astype(np.int64), class_names


def find_columns(split: Any, where: str) -> tuple[str, str]:
    """Return the names of the image column and of the label column of a split.

    Raises:
        DataError: There is none, or several and none to prefer; the message lists the columns.
    """
    import datasets

    features = split.features
    image_columns = [name for name in features if isinstance(features[name], datasets.Image)]
    label_columns = [name for name in features if isinstance(features[name], datasets.ClassLabel)]
    preferred = [name for name in LABEL_COLUMNS if name in label_columns][:1] or label_columns
    for kind, columns in (("image", image_columns), ("label", preferred)):
        if len(columns) != 1:
            listed = ", ".join(f"{name} ({type(features[name]).__name__})" for name in features)
            raise DataError(
                f"{where}: {len(columns)} {kind} columns where one is needed; columns: {listed}"
            )
    return image_columns[0], preferred[0]


def _stack(split: Any, column: str, where: str) -> Images:
    images = [_pixels(image, f"{where}, image {i}") for i, image in enumerate(split[column])]
    if not images:
        raise DataError(f"{where}: no images")
    sizes = sorted({image.shape[:2] for image in images})
    if len(sizes) > 1:
        raise DataError(
            f"{where}: images of {len(sizes)} sizes (height, width), from {sizes[0]} to "
            f"{sizes[-1]}; resize them to one size first"
        )
    # Some colour sets hold a few grey images: these get three equal channels.
    channels = max(image.shape[2] for image in images)
    stacked = np.empty((len(images), *sizes[0], channels), np.uint8)
    for target, image in zip(stacked, images, strict=True):
        target[...] = image
    return stacked


def _pixels(image: Any, where: str) -> Images:
    if image is None:
        raise DataError(f"{where}: there is no image")
    if image.mode.startswith(("I", "F")):
        raise DataError(f"{where}: mode {image.mode}; images have 8 bits per channel")
    grey = image.mode in ("1", "L", "LA")
    pixels = np.asarray(image.convert("L" if grey else "RGB"), np.uint8)
    return pixels[..., np.newaxis] if grey else pixels
