"""Base of the sources that read a file or a folder of a user's own."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import ClassVar

from bfl.data.datasets.base import DatasetSource, meant
from bfl.errors import ConfigurationError
from bfl.files import given_path, near_path


class PathSource(DatasetSource):
    """A source whose location is a path; a relative one is looked up here, then in ``data-dir``.

    Attributes:
        is_folder: Whether the path is that of a folder, and not of a file; None: of either.
    """

    location_form: ClassVar[str] = "PATH"
    is_folder: ClassVar[bool | None] = False

    def check_location(self, location: str, data_dir: Path | None) -> None:
        """Check that it is there."""
        super().check_location(location, data_dir)
        self.find(location, data_dir)

    def absolute(self, location: str, data_dir: Path | None) -> str:
        """Return the absolute path."""
        return str(self.find(location, data_dir).resolve())

    def portable(self, location: str) -> str:
        """Return the name of the file or folder."""
        return PurePath(location).name

    def files(self, location: str, data_dir: Path | None) -> tuple[Path, ...]:
        """Return the path."""
        return (self.find(location, data_dir),)

    def reads_path(self, location: str) -> bool:
        """Return True: a path is all that it takes."""
        return True

    def find(self, location: str, data_dir: Path | None) -> Path:
        """Return the path of the file or folder.

        Raises:
            ConfigurationError: It is not there; the message names the paths that were tried.
        """
        super().check_location(location, data_dir)
        path = given_path(location, "dataset")
        # Joining an absolute path to a folder gives the absolute path again.
        beside = [] if data_dir is None else [given_path(data_dir / path, "dataset in data-dir")]
        tried = list(dict.fromkeys([path, *beside]))
        for candidate in tried:
            kinds = candidate.is_file(), candidate.is_dir()
            if any(kinds) if self.is_folder is None else kinds[self.is_folder]:
                return candidate
        hint = next((meant(other, self.name) for other in tried if other.exists()), "")
        near = [path for other in tried for path in other.parent.glob("[!.]*")]
        near = [p for p in near if self.is_folder is None or p.is_dir() == self.is_folder]
        hint = hint or near_path(path, near)
        kind = {True: "folder", False: "file", None: "file or folder"}[self.is_folder]
        raise ConfigurationError(
            f"dataset '{self.name}:{location}': there is no {kind} "
            f"{' nor '.join(map(str, tried))}; give its path in the key 'dataset' "
            f"({self.name}:{self.location_form}), relative to the current folder or to the folder "
            f"of the key 'data-dir'{hint}"
        )
