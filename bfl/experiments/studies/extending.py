"""Study files that extend others: what studies share is said once, and a file says what differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bfl.configuration.sources import read_toml
from bfl.errors import ConfigurationError
from bfl.files import given_path

EXTENDS = "extends"
"""The key of a study's file that names the files it extends, one or a list, from its folder."""

BY_KEY = ("base", "axes", "published")
"""Tables of which a file may say single keys; all else that it says replaces the whole."""


@dataclass(frozen=True)
class ExtendedFile:
    """A study's file with all that it takes from others.

    Attributes:
        path: The file.
        tables: Its content with theirs, as if it stood in one file.
        published_folder: The folder that ``published.file`` is in, or below.
        extended: The files that it extends, and that these do.
    """

    path: Path
    tables: Mapping[str, Any]
    published_folder: Path
    extended: tuple[Path, ...] = ()

    def refusal(self, problems: Iterable[str]) -> ConfigurationError:
        """Return the error that says what is wrong, a line each."""
        others = f" (which extends {', '.join(map(str, self.extended))})" if self.extended else ""
        lines = (f"study {self.path}{others}: {text}" for text in dict.fromkeys(problems))
        return ConfigurationError("\n".join(lines))


def read_extended(path: Path) -> ExtendedFile:
    """Return a study's file with what it takes from those that it extends.

    Of several files later ones win over earlier ones, each one over what it extends itself, and the
    file over all: ``base``, ``axes`` and ``published`` key by key, anything else as a whole; so is
    ``published`` where its ``file`` is said, or ``false`` for none. An axis that ends up as an
    empty list is left out. Its name and title are its own.

    Raises:
        ConfigurationError: A file cannot be read or is no TOML, ``extends`` is no path, or a file
            extends itself.
    """
    *others, (_, own) = _lineage(path, ())
    if not others:
        return ExtendedFile(path, own, path.parent)
    tables: dict[str, Any] = {}
    published_folder = path.parent
    for each, said in (*others, (path, own)):
        for key, value in said.items():
            table = isinstance(value, Mapping)
            if key in BY_KEY and not table and (key, value) != ("published", False):
                raise ConfigurationError(f"study {each}: {key} is {value!r}; allowed: a table")
            # Another table of published numbers has other notes and lines.
            whole = key == "published" and table and "file" in value
            by_key = key in BY_KEY and table and isinstance(tables.get(key), Mapping)
            tables[key] = {**tables[key], **value} if by_key and not whole else value
            published_folder = each.parent if whole else published_folder
    tables = {k: v for k, v in tables.items() if k not in ("name", "title") or k in own}
    if tables.get("published") is False:
        del tables["published"]
    if "axes" in tables:
        tables["axes"] = {name: values for name, values in tables["axes"].items() if values != []}
    nearest_first = tuple(other for other, _ in reversed(others))
    return ExtendedFile(path, tables, published_folder, nearest_first)


def _lineage(path: Path, below: tuple[Path, ...]) -> list[tuple[Path, dict[str, Any]]]:
    """Return the files that a file extends, each once and before those that extend it, and itself.

    Args:
        path: The file.
        below: The files that extend it, which it cannot extend.
    """
    if path.resolve() in {each.resolve() for each in below}:
        chain = " extends ".join(map(str, (*below, path)))
        raise ConfigurationError(f"study {path} extends itself: {chain}")
    own = read_toml(path)
    given = own.pop(EXTENDS, [])
    names = [given] if isinstance(given, str) else given
    if not (isinstance(names, list) and all(isinstance(name, str) and name for name in names)):
        raise ConfigurationError(
            f"study {path}: extends is {given!r}; allowed: the path of a study's file from this "
            "file's folder, or a list of paths"
        )
    found: dict[Path, tuple[Path, dict[str, Any]]] = {}
    for name in names:
        named = path.parent / given_path(name, f"study {path}: extends")
        # A link to a file extends what lies next to the file.
        other = named if named.exists() else path.resolve().parent / name
        if not other.is_file():
            raise ConfigurationError(f"study {path} extends '{name}', and there is no file {named}")
        for each, tables in _lineage(other, (*below, path)):
            found.setdefault(each.resolve(), (each, tables))
    return [*found.values(), (path, own)]
