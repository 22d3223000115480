"""Data sets with a name: those of the hub or of an archive in ``data-dir``, and two made here."""

from __future__ import annotations

import math
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from bfl.data.datasets.archive import read_archive
from bfl.data.datasets.base import Dataset, DatasetSource, Labels, dataset_sources
from bfl.data.datasets.hub import load_from_hub
from bfl.data.datasets.reading import Reading
from bfl.data.images import Images
from bfl.errors import ConfigurationError, DataError


class Named(NamedTuple):
    """A data set with a name.

    Attributes:
        repository: Its name on the hub; empty: it is not there.
        classes: Their names, or how many classes have numbers.
        kind: What its images show; those of other data sets of a kind are near.
    """

    name: str
    aliases: tuple[str, ...]
    repository: str
    subset: str | None
    classes: str | int
    kind: str
    content: str

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes, in the order of the labels."""
        given = self.classes
        return tuple(given.split(",") if isinstance(given, str) else map(str, range(given)))


NAMED = (
    Named("mnist", (), "ylecun/mnist", None, 10, "digits",
          "60,000 and 10,000 handwritten digits of 28 by 28 grey pixels (LeCun et al. 1998)."),
    Named("fashion-mnist", (), "zalando-datasets/fashion_mnist", None,
          "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot", "garments",
          "60,000 and 10,000 garments of 28 by 28 grey pixels (Xiao et al. 2017)."),
    Named("cifar10", ("cifar-10",), "uoft-cs/cifar10", None,
          "airplane,automobile,bird,cat,deer,dog,frog,horse,ship,truck", "photographs",
          "50,000 and 10,000 photographs of 32 by 32 pixels, 10 classes (Krizhevsky 2009)."),
    Named("cifar100", ("cifar-100",), "uoft-cs/cifar100", None, 100, "photographs",
          "50,000 and 10,000 photographs of 32 by 32 pixels, 100 fine classes (Krizhevsky 2009)."),
    Named("svhn", (), "ufldl-stanford/svhn", "cropped_digits", 10, "digits",
          "73,257 and 26,032 digits of house numbers, 32 by 32 pixels (Netzer 2011)."),
    Named("tiny-imagenet", ("tiny-imagenet200",), "zh-plus/tiny-imagenet", None, 200, "photographs",
          "100,000 and 10,000 photographs of 64 by 64 pixels, 200 classes (Le and Yang 2015)."),
    Named("tiny-imagenet200-subset", ("tiny-imagenet-subset",), "", None, 200, "photographs",
          "100 and 20 images a class of Tiny-ImageNet, in an archive alone."),
)  # fmt: skip
"""All named data sets of images, with their sizes; ``kind`` says which are near each other."""


class NamedSource(DatasetSource):
    """A data set with a name: ``NAME.npz`` in ``data-dir`` if it lies there, else from the hub."""

    row: ClassVar[Named]

    def archives(self, data_dir: Path | None) -> tuple[Path, ...]:
        """Return the paths at which an archive of the data set may lie."""
        stems = dict.fromkeys((self.name, self.name.replace("-", "_")))
        return tuple(data_dir / f"{stem}.npz" for stem in stems) if data_dir else ()

    def check_location(self, location: str, data_dir: Path | None) -> None:
        """Check that ``data-dir`` exists, and that there is an archive or a way to the hub."""
        super().check_location(location, data_dir)
        if data_dir is not None and not data_dir.is_dir():
            raise ConfigurationError(
                f"dataset '{self.name}': there is no folder {data_dir}; the key 'data-dir' is a "
                f"folder with {self.name}.npz, or empty for the Hugging Face hub"
            )
        if not self.row.repository and not self.files(location, data_dir):
            raise ConfigurationError(self._not_found(data_dir, "it is not on the Hugging Face hub"))

    def on_this_machine(self, location: str, data_dir: Path | None) -> bool:
        """Return whether there is an archive; what the hub's cache holds is not known."""
        return bool(self.files(location, data_dir))

    def files(self, location: str, data_dir: Path | None) -> tuple[Path, ...]:
        """Return the archive's path; nothing where the data set is the hub's."""
        return tuple(path for path in self.archives(data_dir) if path.is_file())[:1]

    def load(self, location: str, data_dir: Path | None, reading: Reading) -> Dataset:
        """Return the data set, of the archive or of the hub."""
        self.check_location(location, data_dir)
        for path in self.files(location, data_dir):
            return read_archive(path, self.name, self.row.class_names)
        try:
            return load_from_hub(self.row.repository, self.row.subset, self.name)
        except DataError as error:
            raise DataError(self._not_found(data_dir, str(error))) from error

    def _not_found(self, data_dir: Path | None, hub_problem: str) -> str:
        tried = [f"no file {path}" for path in self.archives(data_dir)] or ["'data-dir' is not set"]
        return (
            f"dataset '{self.name}': {', '.join(tried)}, and {hub_problem}. Put an archive "
            f"{self.name}.npz (x_train, y_train, x_test, y_test; uint8 [N, H, W, C] and integer "
            "[N]) into a folder and name it in the key 'data-dir'"
        )


for _row in NAMED:
    dataset_sources.register(_row.name, aliases=_row.aliases)(
        type(
            f"{_row.name.title().replace('-', '')}Source",
            (NamedSource,),
            {
                "__doc__": f"{_row.name}: {_row.content}",
                "__module__": __name__,
                "__annotations__": {},
                "row": _row,
            },
        )
    )


@dataset_sources.register("digits")
class Digits(DatasetSource):
    """Scikit-learn's handwritten digits: 1,437 and 360 images of 8 by 8 pixels, 10 classes.

    The split is stratified and fixed: it does not depend on the run's seed, so that all runs are
    tested on the same images. Source: Alpaydin & Kaynak (1998), the UCI test set.
    """

    def load(self, location: str, data_dir: Path | None, reading: Reading) -> Dataset:
        """Return the data set; pixels 0..16 become 0..255."""
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        self.check_location(location, data_dir)
        digits = load_digits()
        images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[..., np.newaxis]
        labels = digits.target.astype(np.int64)
        train_images, test_images, train_labels, test_labels = train_test_split(
            images, labels, test_size=0.2, stratify=labels, random_state=0
        )
        names = tuple(str(name) for name in digits.target_names)
        dataset = Dataset(self.name, train_images, train_labels, test_images, test_labels, names)
        dataset.check()
        return dataset


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
        self.check_location(location, data_dir)
        names = tuple(f"arm {c}" for c in range(3))
        dataset = Dataset(self.name, *_arms(200, seed=0), *_arms(500, seed=1), names)
        dataset.check()
        return dataset


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
