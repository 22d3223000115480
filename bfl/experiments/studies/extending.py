"""Study files that extend others: what studies share is said once, and a file says what differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from bfl.configuration.sources import read_toml
from bfl.errors import ConfigurationError

EXTENDS = "extends"
"""The key of a study's file that names the files it extends, one or a list, beside itself."""

OWN = ("name", "title")
"""Keys that a file does not get from those that it extends: what it is called."""

BY_KEY = ("base", "axes", "published")
"""Tables of which a file may say single keys; all else that it says replaces the whole."""

AXES = "axes"


@dataclass(frozen=True)
class ExtendedFile:
    """A study's file with all that it takes from others.

    Attributes:
        path: The file.
        tables: What it says with them, as if it stood in one file.
        published_beside: The folder that ``published.file`` is in, or below.
        extended: The files that it extends, and that these do.
    """

    path: Path
    tables: Mapping[str, Any]
    published_beside: Path
    extended: tuple[Path, ...] = ()

    def __str__(self) -> str:
        """Return the file's path, with those that it extends."""
        names = ", ".join(map(str, self.extended))
        return f"{self.path} (which extends {names})" if names else str(self.path)

    def to_toml(self) -> bytes:
        """Return the file, byte for byte, or one that says the same and extends none."""
        if not self.extended:
            return self.path.read_bytes()
        names = ", ".join(path.name for path in (self.path, *self.extended))
        return f"# {names}, in one file.\n{tomli_w.dumps(self.tables)}".encode()


def read_extended(path: Path, below: tuple[Path, ...] = ()) -> ExtendedFile:
    """Return a study's file with what it takes from those that it extends.

    Of several files later ones win over earlier ones, and the file itself over all: ``base``,
    ``axes`` and ``published`` key by key, anything else as a whole. An axis that it has as an empty
    list is left out. Its name and title are its own.

    Args:
        path: The file.
        below: The files that extend it, which it cannot extend.

    Raises:
        ConfigurationError: A file cannot be read or is no TOML, ``extends`` is no path, or a file
            extends itself.
    """
    path_and_below = (*below, path)
    if path.resolve() in {each.resolve() for each in below}:
        chain = " extends ".join(map(str, path_and_below))
        raise ConfigurationError(f"study {path} extends itself: {chain}")
    own = read_toml(path)
    names = _names(path, own.pop(EXTENDS, []))
    tables: dict[str, Any] = {}
    extended: list[Path] = []
    published_beside = path.parent
    for name in names:
        other = read_extended(path.parent / name, path_and_below)
        if "file" in _table(other.tables, "published"):
            published_beside = other.published_beside
        inherited = {key: value for key, value in other.tables.items() if key not in OWN}
        tables = _merged(tables, inherited)
        extended += [other.path, *other.extended]
    if "file" in _table(own, "published"):
        published_beside = path.parent
    if not extended:
        return ExtendedFile(path, own, published_beside)
    merged = _without_empty_axes(_merged(tables, own))
    return ExtendedFile(path, merged, published_beside, tuple(dict.fromkeys(extended)))


def _names(path: Path, given: Any) -> list[str]:
    """Return the files that a file extends, as it names them."""
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise ConfigurationError(
            f"study {path}: extends is {given!r}; allowed: the path of a study's file from this "
            "file's folder, or a list of paths"
        )
    return names


def _table(tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = tables.get(name)
    return found if isinstance(found, Mapping) else {}


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return what two files say together, where the second one wins."""
    merged = {**first, **second}
    for name in BY_KEY:
        if _table(first, name) and _table(second, name):
            merged[name] = {**first[name], **second[name]}
    return merged


def _without_empty_axes(tables: dict[str, Any]) -> dict[str, Any]:
    axes = _table(tables, AXES)
    return {**tables, AXES: {k: v for k, v in axes.items() if v != []}} if axes else tables
