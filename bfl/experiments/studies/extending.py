"""Study files that extend others: what studies share is said once, and a file says what differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bfl.configuration.sources import read_toml
from bfl.errors import ConfigurationError
from bfl.files import given_path

EXTENDS = "extends"
"""The key of a study's file that names the files it extends, one or a list, from its folder."""

OWN = ("name", "title")
"""Keys that a file does not get from those that it extends: what it is called."""

AXES, PUBLISHED, FILE = "axes", "published", "file"

BY_KEY = ("base", AXES, PUBLISHED)
"""Tables of which a file may say single keys; all else that it says replaces the whole."""

Tables = Mapping[str, Any]


@dataclass(frozen=True)
class ExtendedFile:
    """A study's file with all that it takes from others.

    Attributes:
        path: The file.
        tables: What it says with them, as if it stood in one file.
        published_folder: The folder that ``published.file`` is in, or below.
        extended: The files that it extends, and that these do.
    """

    path: Path
    tables: Tables
    published_folder: Path
    extended: tuple[Path, ...] = ()

    def __str__(self) -> str:
        """Return the file's path, with those that it extends."""
        names = ", ".join(map(str, self.extended))
        return f"{self.path} (which extends {names})" if names else str(self.path)


@dataclass(frozen=True)
class _Part:
    """One file, with what it says itself."""

    path: Path
    tables: Tables


def read_extended(path: Path) -> ExtendedFile:
    """Return a study's file with what it takes from those that it extends.

    Of several files later ones win over earlier ones, each one over what it extends itself, and the
    file over all: ``base``, ``axes`` and ``published`` key by key, anything else as a whole; so is
    ``published`` where its ``file`` is said, or ``false`` for none. An axis that ends up as an
    empty list is left out. Its name and title are its own.

    Args:
        path: The file.

    Raises:
        ConfigurationError: A file cannot be read or is no TOML, ``extends`` is no path, or a file
            extends itself.
    """
    *others, own = _lineage(path, ())
    if not others:
        return ExtendedFile(path, own.tables, path.parent)
    tables: dict[str, Any] = {}
    beside = path.parent
    for part in (*others, own):
        _refuse_no_tables(part)
        tables = _merged(tables, {k: v for k, v in part.tables.items() if k not in OWN})
        if FILE in _table(part.tables, PUBLISHED):
            beside = part.path.parent
    tables |= {key: own.tables[key] for key in OWN if key in own.tables}
    if tables.get(PUBLISHED) is False:
        del tables[PUBLISHED]
    if AXES in tables:
        tables[AXES] = {name: values for name, values in tables[AXES].items() if values != []}
    nearest_first = tuple(part.path for part in reversed(others))
    return ExtendedFile(path, tables, beside, nearest_first)


def _lineage(path: Path, below: tuple[Path, ...]) -> list[_Part]:
    """Return the files that a file extends, each once and before those that extend it, and itself.

    Args:
        path: The file.
        below: The files that extend it, which it cannot extend.
    """
    if path.resolve() in {each.resolve() for each in below}:
        chain = " extends ".join(map(str, (*below, path)))
        raise ConfigurationError(f"study {path} extends itself: {chain}")
    own = read_toml(path)
    found: dict[Path, _Part] = {}
    for name in _names(path, own.pop(EXTENDS, [])):
        beside = path.parent / given_path(name, f"study {path}: extends")
        # A link to a file extends what lies next to the file.
        other = beside if beside.exists() else path.resolve().parent / name
        if not other.is_file():
            raise ConfigurationError(
                f"study {path} extends '{name}', and there is no file {beside}; a copy of a study "
                "needs copies of those that it extends, in the same places"
            )
        for part in _lineage(other, (*below, path)):
            found.setdefault(part.path.resolve(), part)
    return [*found.values(), _Part(path, own)]


def _names(path: Path, given: Any) -> list[str]:
    """Return the files that a file extends, as it names them."""
    names = [given] if isinstance(given, str) else given
    usable = isinstance(names, list) and all(
        isinstance(name, str) and name and "\0" not in name for name in names
    )
    if not usable:
        raise ConfigurationError(
            f"study {path}: extends is {given!r}; allowed: the path of a study's file from this "
            "file's folder, or a list of paths"
        )
    return list(names)


def _refuse_no_tables(part: _Part) -> None:
    """Raise if what is merged by keys is no table: another file would hide it."""
    for name in BY_KEY:
        value = part.tables.get(name, {})
        if not isinstance(value, Mapping) and (name, value) != (PUBLISHED, False):
            raise ConfigurationError(f"study {part.path}: {name} is {value!r}; allowed: a table")


def _table(tables: Tables, name: str) -> Tables:
    found = tables.get(name)
    return found if isinstance(found, Mapping) else {}


def _merged(first: Tables, second: Tables) -> dict[str, Any]:
    """Return what two files say together, where the second one wins."""
    merged = {**first, **second}
    for name in BY_KEY:
        mine, other = first.get(name), second.get(name)
        # Another table of published numbers has other notes and lines.
        whole = name == PUBLISHED and FILE in _table(second, name)
        if isinstance(mine, Mapping) and isinstance(other, Mapping) and not whole:
            merged[name] = {**mine, **other}
    return merged
