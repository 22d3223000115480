"""Published tables: read from CSV, and matched to a study by labels."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bfl.errors import ConfigurationError
from bfl.experiments.studies.columns import Column
from bfl.texts import read_text

LISTED = 6
"""The most unmatched lines that a message names."""


Key = tuple[tuple[str, str], ...]
"""The labels of a line by column, sorted by column."""


Labels = Sequence[Mapping[str, str]]


class Entry(NamedTuple):
    """A published number and its spread, in the column's unit; None: not published."""

    value: float | None = None
    spread: float | None = None


@dataclass(frozen=True)
class PublishedTable:
    """The numbers of a published table."""

    path: Path
    text: str
    lines: Mapping[Key, Mapping[str, Entry]]
    notes: tuple[str, ...] = ()

    def entry(self, key: Key, metric: str) -> Entry:
        """Return a line's number for a metric; an empty entry if there is none."""
        return self.lines.get(key, {}).get(metric, Entry())

    def mismatches(self, keys: Iterable[Key]) -> Iterable[str]:
        """Yield messages on lines of the table or of the study that have no counterpart."""
        ours = dict.fromkeys(keys)
        where = f"published table {self.path}"
        if absent := [key for key in ours if key not in self.lines]:
            yield (
                f"{where}: it has no line for {_listed(absent)}; correct the labels, or mark the "
                "row or the axis's value with published = false"
            )
        if extra := [key for key in self.lines if key not in ours]:
            yield (
                f"{where}: the study has nothing for its line {_listed(extra)}; add the rows, or "
                "name these lines in leave-out"
            )


def read_published(
    path: Path,
    columns: Sequence[Column],
    label_columns: Sequence[str],
    leave_out: Labels = (),
    fractions: Labels = (),
    *,
    text: str | None = None,
) -> PublishedTable:
    """Return a published table.

    Args:
        path: A CSV file with a header. The columns that ``columns`` names hold numbers, or are
            empty where none was published.
        leave_out: Labels by column; lines that match all labels of one of these are left out.
        fractions: Labels in the same form; matching lines print the spread in the unit of the runs'
            numbers, such as a fraction, and the value in the column's, such as percent.
        text: The file's content; None: it is read.

    Raises:
        ConfigurationError: The file cannot be read, lacks a column, has a line twice, or has a cell
            that is not a number.
    """
    try:
        text = read_text(path) if text is None else text
        header, *rows = (row for row in csv.reader(io.StringIO(text), strict=True) if row)
    except OSError as error:
        raise ConfigurationError(f"published table {path}: cannot be read: {error}") from error
    except (ValueError, csv.Error) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    numeric = [name for c in columns for name in (c.published, c.published_spread) if name]
    named = [name for labels in (*leave_out, *fractions) for name in labels]
    if missing := [n for n in (*label_columns, *numeric, *named) if n not in header]:
        raise ConfigurationError(
            f"{path}: no column {', '.join(dict.fromkeys(missing))}; it has {', '.join(header)}"
        )
    lines: dict[Key, dict[str, Entry]] = {}
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ConfigurationError(f"{path}: line {number}: not {len(header)} cells")
        line = dict(zip(header, map(str.strip, row), strict=True))
        numbers = {name: _number(f"{path}: line {number}: {name}", line[name]) for name in numeric}
        if any(labels.items() <= line.items() for labels in leave_out):
            continue
        key = tuple(sorted((name, line[name]) for name in label_columns))
        if key in lines:
            raise ConfigurationError(f"{path}: {_described(key)} stands there twice")
        fraction = any(labels.items() <= line.items() for labels in fractions)
        lines[key] = {c.metric: _entry(numbers, c, fraction) for c in columns if c.published}
    return PublishedTable(path, text, lines)


def _number(where: str, cell: str) -> float | None:
    try:
        return float(cell) if cell else None
    except ValueError as error:
        raise ConfigurationError(f"{where} is {cell!r}; allowed: a number") from error


def _entry(numbers: Mapping[str, float | None], column: Column, fraction: bool) -> Entry:
    spread = numbers.get(column.published_spread)
    if spread is not None:
        spread *= column.scale if fraction else column.published_spread_scale
    return Entry(numbers[column.published], spread)


def _described(key: Key) -> str:
    return ", ".join(f"{column} {label}" for column, label in key)


def _listed(keys: Sequence[Key]) -> str:
    more = f" and {len(keys) - LISTED} more" if len(keys) > LISTED else ""
    return "; ".join(f"({_described(key)})" for key in keys[:LISTED]) + more
