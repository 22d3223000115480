"""A process loads a data set once, however many clients and rounds it serves."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from bfl.data.datasets import Dataset, Reading, dataset_files, load_dataset
from bfl.data.datasets.reading import AS_STORED

Version = tuple[Path, int, int]
"""A file as it is now: its path, the time of its last change in nanoseconds, and its bytes."""


def cached_dataset(dataset: str, data_dir: str, reading: Reading = AS_STORED) -> Dataset:
    """Return what ``load_dataset`` does: loaded once, and again if a file has changed."""
    return _loaded(
        dataset, data_dir, reading, tuple(map(_version, dataset_files(dataset, data_dir)))
    )


@lru_cache(maxsize=2)
def _loaded(
    dataset: str, data_dir: str, reading: Reading, versions: tuple[Version, ...]
) -> Dataset:
    return load_dataset(dataset, data_dir, reading)


def _version(path: Path) -> Version:
    status = path.stat()
    return path, status.st_mtime_ns, status.st_size
