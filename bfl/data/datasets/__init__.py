"""Labelled images, picked by one word of the configuration.

The key ``dataset`` is the name of a source (``digits``, ``cifar10``, ...), with what the source
needs behind a colon (``npz:PATH``, ``hf:NAME``, ``hf:NAME:SUBSET``). A source is a class that
registers itself; a named set of the Hugging Face hub is a row of ``hub.NAMED``.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from bfl.data.datasets.base import (
    Dataset,
    DatasetSource,
    dataset_sources,
    dataset_warnings,
    source_and_location,
)
from bfl.data.datasets.reading import AS_STORED, PIXEL_RANGE, Reading
from bfl.errors import ConfigurationError
from bfl.files import given_path

__all__ = [
    "Dataset",
    "DatasetSource",
    "Reading",
    "absolute_dataset",
    "absolute_other",
    "cached_dataset",
    "dataset_files",
    "dataset_reads_path",
    "dataset_sources",
    "dataset_warnings",
    "load_dataset",
    "portable_dataset",
    "source_and_location",
    "validate_dataset",
]


def load_dataset(dataset: str, data_dir: str | Path = "", reading: Reading = AS_STORED) -> Dataset:
    """Return the data set that a word of the configuration picks, in the run's shape."""
    source, location = source_and_location(dataset)
    source.check_location(location, _folder(data_dir))
    for key, value, takes in (
        ("task", reading.task, reading.task in source.tasks),
        (PIXEL_RANGE, reading.pixel_range, source.takes_pixel_range or not reading.pixel_range),
    ):
        if not takes:
            able = "table" if key == "task" else "npz"
            raise ConfigurationError(
                f"{key} is '{value}' and dataset is '{dataset}'; allowed: {able}"
            )
    loaded = source.load(location, _folder(data_dir), reading)
    loaded.check()
    if reading.test_sites and not loaded.split_here:
        raise ConfigurationError(
            f"test-sites is '{reading.test_sites}', and dataset '{dataset}' says itself what is "
            "for testing; allowed: a folder or a table without a test part"
        )
    return reading.apply(loaded)


def cached_dataset(dataset: str, data_dir: str, reading: Reading = AS_STORED) -> Dataset:
    """Return what ``load_dataset`` does: loaded once a process, and again if a file has changed."""
    status = [(path, path.stat()) for path in dataset_files(dataset, data_dir)]
    versions = tuple((path, now.st_mtime_ns, now.st_size) for path, now in status)
    return _load_version(dataset, data_dir, reading, versions)


@lru_cache(maxsize=2)
def _load_version(
    dataset: str, data_dir: str, reading: Reading, versions: tuple[tuple[Path, int, int], ...]
) -> Dataset:
    return load_dataset(dataset, data_dir, reading)


def validate_dataset(dataset: str, data_dir: str | Path = "") -> None:
    """Raise a ConfigurationError, before images are read, if a data set cannot be loaded."""
    for source, location in _parts(dataset):
        source.check_location(location, _folder(data_dir))


def dataset_files(dataset: str, data_dir: str | Path = "") -> tuple[Path, ...]:
    """Return the files on this machine that a data set is read from; none for one of the hub."""
    folder = _folder(data_dir)
    return tuple(p for source, location in _parts(dataset) for p in source.files(location, folder))


def dataset_reads_path(dataset: str) -> bool:
    """Return whether loading a data set reads from a path that its word names."""
    return any(location for _, location in _parts(dataset))


def absolute_dataset(dataset: str, data_dir: str | Path = "") -> tuple[str, str]:
    """Return the keys ``dataset`` and ``data-dir`` such that the current folder does not matter."""
    source, location = source_and_location(dataset)
    folder = _folder(data_dir)
    behind_colon = f":{source.absolute(location, folder)}" if location else ""
    return f"{source.name}{behind_colon}", str(folder.resolve()) if folder else ""


def absolute_other(dataset: str, data_dir: str, beside: str) -> str:
    """Return what another key names as ``absolute_dataset`` does; ``beside`` begins a refusal."""
    try:
        validate_dataset(dataset, data_dir)
    except ConfigurationError as error:
        raise ConfigurationError(f"{beside}: {error}") from error
    return absolute_dataset(dataset, data_dir)[0]


def portable_dataset(dataset: str) -> str:
    """Return the key ``dataset`` without where a file lies; as it is if it names no data set."""
    spelling, _, location = dataset.strip().partition(":")
    if spelling not in dataset_sources or not location:
        return dataset
    source = dataset_sources.create(spelling)
    return f"{source.name}:{source.portable(location.strip())}"


def _parts(dataset: str) -> list[tuple[DatasetSource, str]]:
    source, location = source_and_location(dataset)
    return source.parts(location)


def _folder(data_dir: str | Path) -> Path | None:
    return given_path(data_dir, "data-dir") if str(data_dir) else None
