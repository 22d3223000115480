"""The handwritten digits that come with scikit-learn: no file, no network."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bfl.data.datasets.base import Dataset, DatasetSource, dataset_sources

TEST_FRACTION = 0.2
"""The share of the 1,797 images that is kept for testing."""


@dataset_sources.register("digits")
class Digits(DatasetSource):
    """Scikit-learn's handwritten digits: 1,437 and 360 images of 8 by 8 pixels, 10 classes.

    The split is stratified and fixed: it does not depend on the run's seed, so that all runs are
    tested on the same images. Source: Alpaydin & Kaynak (1998), the UCI test set.
    """

    def load(self, location: str, data_dir: Path | None) -> Dataset:
        """Return the data set; pixels 0..16 become 0..255."""
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        self.check_location(location, data_dir)
        digits = load_digits()
        images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[..., np.newaxis]
        labels = digits.target.astype(np.int64)
        train_images, test_images, train_labels, test_labels = train_test_split(
            images, labels, test_size=TEST_FRACTION, stratify=labels, random_state=0
        )
        dataset = Dataset(
            name=self.name,
            train_images=train_images,
            train_labels=train_labels,
            test_images=test_images,
            test_labels=test_labels,
            class_names=tuple(str(name) for name in digits.target_names),
        )
        dataset.check()
        return dataset
