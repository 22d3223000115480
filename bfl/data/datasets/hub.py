"""Data sets of the Hugging Face hub, and two made here."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bfl.data.datasets.archive import number_classes, read_archive, whole_labels
from bfl.data.datasets.base import Dataset, DatasetSource, Labels, dataset_sources
from bfl.data.datasets.reading import AS_STORED, Reading
from bfl.data.images import Images, pixels_of, with_channels
from bfl.errors import ConfigurationError, DataError

LABEL_COLUMNS = ("label", "fine_label", "labels", "class", "target")
"""The label columns to prefer, when a data set has several (CIFAR-100 has coarse ones too)."""

TEST_SPLITS = ("test", "validation", "valid")
"""The splits to test on, in the order of preference."""


class Named(NamedTuple):
    """A data set with a name.

    Attributes:
        repository: Its name on the hub; empty: it is not there.
        classes: Their names, or how many classes have numbers.
        kind: What its images show; those of other data sets of a kind are near.
    """

    name: str
    classes: list[str] | int
    kind: str
    content: str
    repository: str = ""
    subset: str | None = None
    aliases: Sequence[str] = ()


_ROWS = tomllib.loads(Path(__file__).with_name("named.toml").read_text(encoding="utf-8"))
NAMED = tuple(Named(name, **row) for name, row in _ROWS.items())
"""All named data sets of images, with their sizes."""


class NamedSource(DatasetSource):
    """A data set with a name: ``NAME.npz`` in ``data-dir`` if it lies there, else from the hub."""

    row: ClassVar[Named]

    def check_location(self, location: str, data_dir: Path | None) -> None:
        """Check that ``data-dir`` exists, and that there is an archive or a way to the hub."""
        super().check_location(location, data_dir)
        missing = data_dir is not None and not data_dir.is_dir()
        if missing or not (self.row.repository or self.files(location, data_dir)):
            raise ConfigurationError(self._not_found(data_dir))

    def files(self, location: str, data_dir: Path | None) -> tuple[Path, ...]:
        """Return the archive's path; nothing where the data set is the hub's."""
        names = [f"{stem}.npz" for stem in (self.name, self.name.replace("-", "_"))]
        paths = [data_dir / name for name in names] if data_dir else []
        return tuple(path for path in paths if path.is_file())[:1]

    def load(self, location: str, data_dir: Path | None, reading: Reading) -> Dataset:
        """Return the data set, of the archive or of the hub."""
        classes = self.row.classes
        names = classes if isinstance(classes, list) else map(str, range(classes))
        for path in self.files(location, data_dir):
            return read_archive(path, self.name, tuple(names))
        try:
            return load_from_hub(self.row.repository, self.row.subset, self.name)
        except DataError as error:
            raise DataError(f"{self._not_found(data_dir)}; {error}") from error

    def _not_found(self, data_dir: Path | None) -> str:
        return (
            f"dataset '{self.name}': data-dir is '{data_dir or ''}'; allowed: a folder with "
            f"{self.name}.npz (x_train, y_train, x_test, y_test)"
            f"{', or none for the Hugging Face hub' * bool(self.row.repository)}"
        )


for _row in NAMED:
    _name, _doc = f"{_row.name.title().replace('-', '')}Source", f"{_row.name}: {_row.content}"
    _said = {"__doc__": _doc, "__module__": __name__, "__annotations__": {}, "row": _row}
    _source = type(_name, (NamedSource,), _said)
    dataset_sources.register(_row.name, aliases=tuple(_row.aliases))(_source)


@dataset_sources.register("hf")
class Hub(DatasetSource):
    """A data set of the Hugging Face hub: ``hf:NAME``, or ``hf:NAME:SUBSET``.

    It needs a column of images, a column of labels (classes or whole numbers), a split ``train``
    and a labelled split ``test`` (or ``validation``). Whatever the name, it is taken to
    read a path: the library prefers a folder of that name to the hub, takes a word such as
    ``imagefolder`` for a loader of what lies here, and reads paths that a repository names.
    """

    location_form: ClassVar[str] = "NAME[:SUBSET]"

    def load(self, location: str, data_dir: Path | None, reading: Reading) -> Dataset:
        """Return the data set of the hub, each image brought into its shape when it is read."""
        repository, _, subset = location.partition(":")
        return load_from_hub(repository, subset or None, f"hf:{location}", reading)


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
    """Return splits of ``datasets``, to be tested on the first labelled one of tests."""
    tests = [each for each in TEST_SPLITS if isinstance(splits, Mapping) and each in splits]
    if not tests or "train" not in splits:
        raise DataError(f"{repository} needs the splits train and {' or '.join(TEST_SPLITS)}")
    read = {}
    for split in ("train", *tests):
        where = f"{repository}, split {split}"
        columns = find_columns(splits[split], where)
        labels = splits[split][columns[1]][:]
        # Of a test split whose labels are hidden, all are -1.
        if split == "train" or split == tests[-1] or any(label != -1 for label in labels):
            names = tuple(getattr(splits[split].features[columns[1]], "names", ()))
            if any(isinstance(label, str) for label in labels):
                raise DataError(
                    f"{where}: labels in column '{columns[1]}' are texts; allowed: a ClassLabel "
                    f"column (class_encode_column('{columns[1]}') of datasets makes one)"
                )
            found = whole_labels(f"{where}: column '{columns[1]}'", np.asarray(labels))
            read[split] = read_images(splits[split], columns[0], where, reading), found, names
        if len(read) == 2:
            break
    (train, train_labels, names), (test, test_labels, test_names) = read.values()
    if names != test_names:
        raise DataError(f"{repository}: the splits name different classes")
    # Some colour sets hold grey images: these get three equal channels.
    channels = max(train.shape[3], test.shape[3])
    return Dataset(
        name,
        with_channels(train, channels),
        train_labels,
        with_channels(test, channels),
        test_labels,
        names or number_classes(f"{repository}, split train: labels", train_labels),
    )


def read_images(split: Any, column: str, where: str, reading: Reading = AS_STORED) -> Images:
    """Return the images (N, H, W, C) of a split of ``datasets``, each in the run's shape."""

    def open_images() -> Iterator[tuple[str, Images]]:
        for number in range(len(split)):
            name = f"{where}, image {number}"
            try:
                pixels = pixels_of(split[number][column])
            # Pillow and its decoders have exceptions of their own, by what is damaged.
            except Exception as error:
                raise DataError(f"{name}: cannot be read: {error}") from error
            yield name, pixels

    if not len(split):
        raise DataError(f"{where}: no images")
    return reading.stack(open_images())


def find_columns(split: Any, where: str) -> tuple[str, str]:
    """Return the names of the image column and of the label column of a split."""
    import datasets

    kinds = {name: type(feature) for name, feature in split.features.items()}
    images = [name for name, kind in kinds.items() if kind is datasets.Image]
    labels = [name for name, kind in kinds.items() if kind is datasets.ClassLabel]
    preferred = [name for name in LABEL_COLUMNS if name in (labels or kinds)][:1] or labels
    for what, columns in (("image", images), ("label", preferred)):
        if len(columns) != 1:
            listed = ", ".join(f"{name} ({kind.__name__})" for name, kind in kinds.items())
            raise DataError(
                f"{where}: {len(columns)} {what} columns of {listed}; allowed: one, of labels a "
                f"ClassLabel, or whole numbers called {' or '.join(LABEL_COLUMNS)}"
            )
    return images[0], preferred[0]


@dataset_sources.register("digits")
class Digits(DatasetSource):
    """Scikit-learn's handwritten digits: 1,437 and 360 images of 8 by 8 pixels, 10 classes.

    The split is stratified and fixed: it does not depend on the run's seed, so that all runs are
    tested on the same images. Source: Alpaydin & Kaynak (1998), the UCI test set.
    """

    def load(self, location: str, data_dir: Path | None, reading: Reading) -> Dataset:
        """Return the data set; pixels 0..16 become 0..255."""
        # Its file and the split are read without scikit-learn, whose import takes seconds.
        package = Path(str(find_spec("sklearn").origin)).parent  # type: ignore[union-attr]
        rows = np.loadtxt(package / "datasets" / "data" / "digits.csv.gz", delimiter=",")
        images = np.rint(rows[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
        labels = rows[:, -1].astype(np.int64)
        split = tomllib.loads(Path(__file__).with_name("digits.toml").read_text(encoding="utf-8"))
        train, test = split["train"], split["test"]
        names = tuple(map(str, range(10)))
        return Dataset(self.name, images[train], labels[train], images[test], labels[test], names)


@dataset_sources.register("swiss-roll")
class SwissRoll(DatasetSource):
    """Three interleaved arms of a roll in the plane: 600 and 1,500 "images" of 1 by 2 pixels.

    The arm of class c is (r cos φ, r sin φ) with φ = 2π (r + c / 3) and r from 0.1 to 1, with noise
    of 0.03 in each direction; the pixels are the two coordinates, −1.2 to 1.2 as 0 to 255. The same
    for every seed.

    Source: Chen and Chao (2021), FedBE, section 3.3, "Analysis", and Fig. 1 (a), which shows such
    data and says neither how they are made nor how many there are.
    """

    def load(self, location: str, data_dir: Path | None, reading: Reading) -> Dataset:
        """Return the data set."""
        names = tuple(f"arm {c}" for c in range(3))
        return Dataset(self.name, *_arms(200, seed=0), *_arms(500, seed=1), names)


def _arms(each: int, seed: int) -> tuple[Images, Labels]:
    """Return images (N, 1, 2, 1) and labels (N,), so many of each class."""
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(3, dtype=np.int64), each)
    radius = generator.uniform(0.1, 1.0, labels.size)
    angle = 2 * math.pi * (radius + labels / 3)
    points = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    points += generator.normal(0.0, 0.03, points.shape)
    levels = np.clip(np.rint((points / 1.2 + 1) * 127.5), 0, 255)
    return levels.astype(np.uint8)[:, None, :, None], labels
