"""Base of data sets with a name: from an archive in ``data-dir``, else from the hub."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from bfl.data.datasets.archive import read_archive
from bfl.data.datasets.base import Dataset, DatasetSource
from bfl.data.datasets.hub import MISSING_LIBRARY, library_installed, load_from_hub
from bfl.errors import ConfigurationError, DataError

NOT_ON_THE_HUB = "it is not on the Hugging Face hub"


class NamedSource(DatasetSource):
    """A data set with a name: ``NAME.npz`` in ``data-dir`` if it lies there, else from the hub.

    Attributes:
        repository: Its name on the hub; empty: it is not there.
        subset: Its subset on the hub, where it has several.
        class_names: Its classes, in the order of the labels.
    """

    repository: ClassVar[str]
    subset: ClassVar[str | None] = None
    class_names: ClassVar[tuple[str, ...]]

    def archives(self, data_dir: Path | None) -> tuple[Path, ...]:
        """Return the paths at which an archive of the data set may lie."""
        if data_dir is None:
            return ()
        stems = dict.fromkeys((self.name, self.name.replace("-", "_")))
        return tuple(data_dir / f"{stem}.npz" for stem in stems)

    def check_location(self, location: str, data_dir: Path | None) -> None:
        """Check that ``data-dir`` exists, and that there is an archive or a way to the hub."""
        super().check_location(location, data_dir)
        if data_dir is not None and not data_dir.is_dir():
            raise ConfigurationError(
                f"dataset '{self.name}': there is no folder {data_dir}; the key 'data-dir' is a "
                f"folder with {self.name}.npz, or empty for the Hugging Face hub"
            )
        if not self.on_this_machine(location, data_dir):
            if not self.repository:
                raise ConfigurationError(self._not_found(data_dir, NOT_ON_THE_HUB))
            if not library_installed():
                raise ConfigurationError(self._not_found(data_dir, MISSING_LIBRARY))

    def on_this_machine(self, location: str, data_dir: Path | None) -> bool:
        """Return whether there is an archive; what the hub's cache holds is not known."""
        return any(path.is_file() for path in self.archives(data_dir))

    def files(self, location: str, data_dir: Path | None) -> tuple[Path, ...]:
        """Return the archive's path; nothing where the data set is the hub's."""
        return tuple(path for path in self.archives(data_dir) if path.is_file())[:1]

    def load(self, location: str, data_dir: Path | None) -> Dataset:
        """Return the data set, of the archive or of the hub."""
        super().check_location(location, data_dir)
        for path in self.files(location, data_dir):
            return read_archive(path, self.name, self.class_names)
        if not self.repository:
            raise DataError(self._not_found(data_dir, NOT_ON_THE_HUB))
        try:
            return load_from_hub(self.repository, self.subset, self.name)
        except DataError as error:
            raise DataError(self._not_found(data_dir, str(error))) from error

    def _not_found(self, data_dir: Path | None, hub_problem: str) -> str:
        tried = [f"no file {path}" for path in self.archives(data_dir)] or ["'data-dir' is not set"]
        return (
            f"dataset '{self.name}': {', '.join(tried)}, and {hub_problem}. Put an archive "
            f"{self.name}.npz (x_train, y_train, x_test, y_test; uint8 [N, H, W, C] and integer "
            "[N]) into a folder and name it in the key 'data-dir'"
        )
