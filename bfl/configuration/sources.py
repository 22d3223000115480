"""Where configuration values come from: an app's pyproject.toml, TOML files, key=value pairs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bfl.configuration.configuration import Value
from bfl.errors import ConfigurationError

_PAIR = re.compile(r"""([\w.-]+)\s*=\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"']+)""")


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file.

    Raises:
        ConfigurationError: The file is missing or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"configuration file {path}: cannot be read ({error})") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"configuration file {path}: not TOML ({error})") from error


def flatten(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Value]:
    """Return nested tables as dotted keys, as Flower does."""
    flat: dict[str, Value] = {}
    for key, value in tables.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def parse_pairs(text: str) -> dict[str, Value]:
    """Return the values of ``key=value`` pairs, separated by spaces; values are TOML.

    Example:
        >>> parse_pairs('strategy="conflation" rounds=3 alpha=0.5')
        {'strategy': 'conflation', 'rounds': 3, 'alpha': 0.5}

    Raises:
        ConfigurationError: Something is not a pair, or a value is not TOML.
    """
    rest = _PAIR.sub("", text).strip(" ,\t\n")
    if rest:
        raise ConfigurationError(
            f"run configuration: {rest!r} is not a key=value pair; "
            """expected for instance 'strategy="conflation" rounds=3'"""
        )
    values: dict[str, Value] = {}
    for key, value in _PAIR.findall(text):
        try:
            parsed = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            raise ConfigurationError(
                f"run configuration: {key}={value} has no TOML value; "
                f'a string needs quotes: {key}="{value}"'
            ) from None
        if key in values:
            raise ConfigurationError(f"run configuration: {key} is given twice")
        values[key] = parsed
    return values


def read_run_config(texts: Iterable[str]) -> dict[str, Value]:
    """Return the values of ``--run-config`` arguments: each key=value pairs or a TOML file's path.

    Raises:
        ConfigurationError: A file or a pair cannot be read, or a key stands in two arguments.
    """
    values: dict[str, Value] = {}
    for text in texts:
        is_file = text.strip().endswith(".toml") and "=" not in text
        given = flatten(read_toml(Path(text.strip()))) if is_file else parse_pairs(text)
        twice = sorted(values.keys() & given.keys())
        if twice:
            raise ConfigurationError(f"run configuration: {', '.join(twice)} is given twice")
        values.update(given)
    return values
