"""JSON and TOML from files and messages that others may have written."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from typing import Any

MOST_LEVELS = 64
"""Values within values that are read: what goes through them calls itself once for each level."""


def from_json(text: str | bytes | bytearray) -> Any:
    """Return the value that a text in JSON describes.

    Raises:
        ValueError: It is not JSON, or has too many levels.
    """
    return _parsed(json.loads, text)


def from_toml(text: str) -> dict[str, Any]:
    """Return the tables that a text in TOML describes.

    Raises:
        ValueError: It is not TOML, or has too many levels.
    """
    tables: dict[str, Any] = _parsed(tomllib.loads, text)
    return tables


def _parsed(parse: Callable[[Any], Any], text: Any) -> Any:
    too_deep = ValueError(f"it has more than {MOST_LEVELS} levels of values within values")
    try:
        value = parse(text)
    except RecursionError:
        raise too_deep from None
    level = [value]
    for _ in range(MOST_LEVELS + 1):
        level = [each for each in level if isinstance(each, dict | list)]
        if not level:
            return value
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    raise too_deep
