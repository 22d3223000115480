"""Random images as a data set for benchmarks, which need none to learn from."""

from __future__ import annotations

from pathlib import Path

import numpy as np

CLASSES, TEST = 10, 100
SHAPE = (32, 32, 3)


def write_images(folder: Path, count: int) -> str:
    """Write random images in CIFAR-10's shape with balanced labels; return the data set's word.

    Args:
        folder: The folder that gets ``images.npz``.
        count: Training images; there are 100 test images.
    """
    generator = np.random.default_rng(0)
    path = folder / "images.npz"
    x_train, x_test = (
        generator.integers(0, 256, (size, *SHAPE), dtype=np.uint8) for size in (count, TEST)
    )
    y_train, y_test = (np.arange(size) % CLASSES for size in (count, TEST))
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return f"npz:{path}"
