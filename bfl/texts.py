"""Text, JSON and TOML that others have written, with whatever editor and on whatever system."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bfl.errors import ConfigurationError

_AT_LINE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


def printable(text: str) -> str:
    r"""Return a text of somebody else's for a terminal: what is not printable as its escape.

    Example:
        >>> printable("a\x1b[2J\n")
        'a\\x1b[2J\\n'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def for_terminal(text: str) -> str:
    """Return a message for a terminal: its first 40 lines, printable and cut short."""
    return "\n".join(printable(line)[:4000] for line in text.splitlines()[:40])


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


def spelt_alike(names: Iterable[str]) -> list[list[str]]:
    """Return groups of names that differ in capitals and spaces alone."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault("".join(name.split()).casefold(), []).append(name)
    return [group for group in groups.values() if group[1:]]


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
    r"""Return the text of a file in UTF-8, with a byte-order mark or without; ends of lines ``\n``.

    Raises:
        ValueError: Bytes are of another encoding, or NUL; the message begins with the line.
    """
    try:
        text = data.decode("utf-8-sig")
        at, problem = text.find("\0"), "a NUL character"
    except UnicodeDecodeError as error:
        at, problem = error.start, f"byte 0x{data[error.start]:02x} is not UTF-8"
        text = data[:at].decode("latin-1")
    if at >= 0:
        line = len(re.findall(r"\r\n|\r|\n", text[:at])) + 1
        raise ValueError(f"line {line}: {problem}; save the file as UTF-8")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def from_toml(text: str | bytes) -> dict[str, Any]:
    """Return the tables of a text in TOML, or raise ValueError."""
    tables: dict[str, Any] = _parse(tomllib.loads, text)
    return tables


def from_json(text: str | bytes | bytearray) -> Any:
    """Return the value of a text in JSON, or raise ValueError."""
    return _parse(json.loads, text)


def _parse(parse: Callable[[str], Any], given: str | bytes | bytearray) -> Any:
    text = given if isinstance(given, str) else decoded(bytes(given))
    try:
        return parse(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno}: not JSON: {error.msg}") from error
    except tomllib.TOMLDecodeError as error:
        found = _AT_LINE.search(str(error))
        line = found[1] if found and found[1] else text.count("\n") + 1
        raise ValueError(f"line {line}: not TOML: {_AT_LINE.sub('', str(error))}") from error
    except RecursionError:
        raise ValueError("it has too many levels of values within values") from None


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
