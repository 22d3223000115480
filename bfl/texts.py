"""Text, JSON and TOML that others have written, with whatever editor and on whatever system."""

from __future__ import annotations

import codecs
import json
import math
import re
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bfl.errors import ConfigurationError

MOST_LEVELS = 64
"""Values within values that are read."""

MOST_OF_A_WORD, MOST_LINES = 500, 40
"""Characters of a word, and lines, that a message for a terminal has."""

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""The first bytes of files of another encoding than plain UTF-8."""

_PART = r"""(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_MANY_DOTS = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*\.[ \t]*{_PART}){{{MOST_LEVELS}}}")
"""A key in TOML of too many levels: what reads it takes time in the square of them."""

_TOO_DEEP = f"it has more than {MOST_LEVELS} levels of values within values"
_LONG_WORD = re.compile(rf"\S{{{MOST_OF_A_WORD + 1},}}")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_AT_LINE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


def printable(text: str) -> str:
    r"""Return a text of somebody else's for a terminal: what is not printable as its escape.

    Example:
        >>> printable("a\x1b[2J\n")
        'a\\x1b[2J\\n'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def for_terminal(text: str) -> str:
    """Return a message for a terminal: each line printable, what is too long in it cut short."""
    lines = text.splitlines()
    shown = [
        _shortened(_LONG_WORD.sub(lambda found: _shortened(found[0], MOST_OF_A_WORD), line), 4000)
        for line in lines[:MOST_LINES]
    ]
    more = [f"and {len(lines) - MOST_LINES} more lines"] if lines[MOST_LINES:] else []
    return "\n".join([*map(printable, shown), *more])


def _shortened(text: str, most: int) -> str:
    half = most // 2
    return text if len(text) <= most else f"{text[:half]} … {text[-half:]}"


def counted(number: float, what: str) -> str:
    """Return a number with what it counts, such as "1 round" and "2 rounds"."""
    shown = number if isinstance(number, int) else f"{number:g}"
    return f"{shown} {what}{'s' * (number != 1)}"


def few(texts: Sequence[str], most: int = 10) -> str:
    """Return the first of some texts for a message, and how many more there are.

    Example:
        >>> few(["a", "b", "c", "d"], 2)
        'a, b and 2 more'
    """
    more = f" and {len(texts) - most} more" if texts[most:] else ""
    return ", ".join(map(printable, texts[:most])) + more


def numbers(text: str) -> list[float]:
    """Return the numbers of a text with commas; none of one that has something else as well."""
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError:
        return []
    return found if all(map(math.isfinite, found)) else []


def read_text(path: Path) -> str:
    """Return the text of a file; errors are OSError and those of ``decoded``."""
    return decoded(path.read_bytes())


def decoded(data: bytes) -> str:
    r"""Return the text of a file: UTF-8, or what its byte-order mark says; lines end with ``\n``.

    Raises:
        ValueError: Bytes are of another encoding, or NUL; the message begins with the line.
    """
    encoding = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        # Bytes, as what stands before the line may not be decoded either.
        line = len(re.findall(rb"\r\n|\r|\n", data[: error.start])) + 1
        raise ValueError(
            f"line {line}: byte 0x{data[error.start]:02x} is not {encoding.upper()[:6]}; "
            "save the file as UTF-8"
        ) from None
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if (nul := text.find("\0")) >= 0:
        line = text.count("\n", 0, nul) + 1
        raise ValueError(f"line {line}: a NUL character; save the file as UTF-8")
    return text


def from_toml(text: str | bytes) -> dict[str, Any]:
    """Return the tables of a text in TOML.

    Raises:
        ValueError: It is not TOML, has too many levels, or a control character.
    """
    tables: dict[str, Any] = _parsed(_toml_tables, text)
    return tables


def _toml_tables(text: str) -> dict[str, Any]:
    if _MANY_DOTS.search(text):
        raise RecursionError  # as where the values have as many levels
    return tomllib.loads(text)


def from_json(text: str | bytes | bytearray) -> Any:
    """Return the value of a text in JSON; errors are those of ``from_toml``."""
    return _parsed(json.loads, text)


def _parsed(parse: Callable[[str], Any], given: str | bytes | bytearray) -> Any:
    text = given if isinstance(given, str) else decoded(bytes(given))
    try:
        value = parse(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}: not JSON: {error.msg}") from error
    except tomllib.TOMLDecodeError as error:
        found = _AT_LINE.search(str(error))
        line = found[1] if found and found[1] else text.count("\n") + 1
        raise ValueError(f"line {line}: not TOML: {_AT_LINE.sub('', str(error))}") from error
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    _check(value, MOST_LEVELS)
    return value


def _check(value: Any, levels: int) -> None:
    """Refuse control characters, and values within values beyond so many levels."""
    if isinstance(value, str) and _CONTROL.search(value):
        raise ValueError(f"a control character in {value!r}; allowed: printable text")
    if isinstance(value, dict | list):
        if not levels:
            raise ValueError(_TOO_DEEP)
        for inner in [*value, *value.values()] if isinstance(value, dict) else value:
            _check(inner, levels - 1)


def assigned(entries: Sequence[tuple[str, int | None]], clients: int, key: str) -> tuple[int, ...]:
    """Return which entry of a key such as ``mlp:2,cnn1:6`` each client has, counted from 0.

    Args:
        entries: At least one word, each with its number of clients; None, which only the last one
            may have: all that are left.

    Raises:
        ConfigurationError: The numbers are not those of the clients.
    """
    named = sum(count or 0 for _, count in entries)
    if named > clients or (named < clients and entries[-1][1] is not None):
        text = ",".join(f"{word}:{count}" if count else word for word, count in entries)
        raise ConfigurationError(
            f"{key} is '{text}', for {named} clients, and there are {clients}; allowed: numbers "
            f"that sum to {clients}, or a last one without a number, for all that are left"
        )
    counts = [clients - named if count is None else count for _, count in entries]
    return tuple(index for index, number in enumerate(counts) for _ in range(number))
