"""A process loads a data set once, however many clients and rounds it serves."""

from __future__ import annotations

from functools import lru_cache

from bfl.data.datasets import Dataset, load_dataset


@lru_cache(maxsize=2)
def cached_dataset(dataset: str, data_dir: str) -> Dataset:
    """Return ``load_dataset(dataset, data_dir)``, loaded at most once per process."""
    return load_dataset(dataset, data_dir)
