"""Randomness keyed by the run's seed and by labels: purpose, round, partition id and so on.

No draw depends on the process that makes it, on what that did before, or on an interruption.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt


def seed_sequence(seed: int, *labels: str | int) -> np.random.SeedSequence:
    """Return the seed sequence of a run's seed and labels.

    Args:
        seed: The run's seed, at least 0.
        labels: What the numbers are for, for instance ``("train", round, partition_id)``.
    """
    words = tuple(
        zlib.crc32(label.encode()) if isinstance(label, str) else int(label) for label in labels
    )
    return np.random.SeedSequence(entropy=seed, spawn_key=words)


def generator(seed: int, *labels: str | int) -> np.random.Generator:
    """Return a NumPy generator (Philox) of its own for a run's seed and labels."""
    return np.random.Generator(np.random.Philox(seed_sequence(seed, *labels)))


def key(seed: int, *labels: str | int) -> npt.NDArray[np.int32]:
    """Return a key (2,) for TensorFlow's stateless random operations."""
    return seed_sequence(seed, *labels).generate_state(2, np.uint32).view(np.int32)
