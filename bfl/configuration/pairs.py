"""Key=value pairs in a text, as Flower writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import tomli_w

from bfl.errors import ConfigurationError
from bfl.texts import from_toml

Value = str | int | float | bool
"""A value of Flower's run configuration."""

_PAIR = re.compile(r"""([\w.-]+)\s*=\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"']+)""")


def format_pairs(values: Mapping[str, Value]) -> str:
    """Return values as ``parse_pairs`` reads them.

    Example:
        >>> format_pairs({"strategy": "conflation", "rounds": 3, "resume": True})
        'strategy="conflation" rounds=3 resume=true'
    """
    lines = (tomli_w.dumps({"value": value}).strip() for value in values.values())
    pairs = zip(values, lines, strict=True)
    return " ".join(f"{key}={line.removeprefix('value = ')}" for key, line in pairs)


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
            parsed = from_toml(f"value = {value}")["value"]
        except ValueError as error:
            quotes = "" if value[0] in "\"'" else f'; a string needs quotes: {key}="{value[:200]}"'
            raise ConfigurationError(
                f"run configuration: {key}={value[:200]} has no TOML value ({error}){quotes}"
            ) from None
        if key in values:
            raise ConfigurationError(f"run configuration: {key} is given twice")
        values[key] = parsed
    return values
