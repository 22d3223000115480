"""A Swiss roll of three classes: two numbers an example, made here."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from bfl.data.datasets.base import Dataset, DatasetSource, Labels, dataset_sources
from bfl.data.images import Images

CLASSES = 3
NOISE = 0.03


@dataset_sources.register("swiss-roll")
class SwissRoll(DatasetSource):
    """Three interleaved arms of a roll in the plane: 600 and 1,500 "images" of 1 by 2 pixels.

    The arm of class c is (r cos φ, r sin φ) with φ = 2π (r + c / 3) and r from 0.1 to 1, with noise
    of 0.03 in each direction; the pixels are the two coordinates, −1.2 to 1.2 as 0 to 255. The same
    for every seed.

    The source shows such data in a figure and says neither how they are made nor how many there
    are. Source: Chen and Chao (2021), FedBE, section 3.3, "Analysis", and Fig. 1 (a).
    """

    def load(self, location: str, data_dir: Path | None) -> Dataset:
        """Return the data set."""
        self.check_location(location, data_dir)
        train_images, train_labels = _arms(200, seed=0)
        test_images, test_labels = _arms(500, seed=1)
        dataset = Dataset(
            name=self.name,
            train_images=train_images,
            train_labels=train_labels,
            test_images=test_images,
            test_labels=test_labels,
            class_names=tuple(f"arm {c}" for c in range(CLASSES)),
        )
        dataset.check()
        return dataset


def _arms(each: int, seed: int) -> tuple[Images, Labels]:
    """Return images (N, 1, 2, 1) and labels (N,), so many of each class."""
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(CLASSES, dtype=np.int64), each)
    radius = generator.uniform(0.1, 1.0, labels.size)
    angle = 2 * math.pi * (radius + labels / CLASSES)
    points = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    points += generator.normal(0.0, NOISE, points.shape)
    levels = np.clip(np.rint((points / 1.2 + 1) * 127.5), 0, 255)
    return levels.astype(np.uint8)[:, None, :, None], labels
