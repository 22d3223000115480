"""Published tables: read from CSV, and matched to a study by labels, completely or not at all."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bfl.errors import ConfigurationError
from bfl.experiments.studies.columns import Column
from bfl.texts import read_text

LISTED = 6
"""How many lines that do not match a message names."""

Key = tuple[tuple[str, str], ...]
"""The labels of a line by column, sorted by column."""


@dataclass(frozen=True)
class Entry:
    """A published number in the unit of its column.

    Attributes:
        value: The number; None: not published.
        spread: Its spread in the same unit; None: not published.
    """

    value: float | None
    spread: float | None


@dataclass(frozen=True)
class PublishedTable:
    """The numbers of a published table.

    Attributes:
        path: The file.
        label_columns: The columns that say what a line is about.
        lines: Entries by metric, by the labels of the line.
        notes: What has to be known of its numbers.
        beside: The folder of the study's file that names it.
    """

    path: Path
    label_columns: tuple[str, ...]
    lines: Mapping[Key, Mapping[str, Entry]]
    notes: tuple[str, ...] = ()
    beside: Path = Path()

    @property
    def name(self) -> str:
        """Its path from the study's file, which a copy of the study keeps."""
        return self.path.relative_to(self.beside).as_posix()

    def entry(self, key: Key, metric: str) -> Entry:
        """Return the number of a line, or one without value where there is none."""
        return self.lines.get(key, {}).get(metric, Entry(None, None))


def read_published(
    path: Path,
    columns: Sequence[Column],
    label_columns: Sequence[str],
    leave_out: Sequence[Mapping[str, str]] = (),
    fractions: Sequence[Mapping[str, str]] = (),
) -> PublishedTable:
    """Return a published table.

    Args:
        path: A CSV file with a header. The columns that ``columns`` names hold numbers, or nothing
            where none was published; all others hold labels, but for columns of decimal numbers
            that the study does not ask for.
        columns: What is taken from it.
        label_columns: The columns of the study's labels.
        leave_out: Labels by column; lines that have all labels of one of these are left out.
        fractions: Likewise; lines whose spread is printed as a fraction of 1 where the value is in
            percent, or in what else ``scale`` makes of it.

    Raises:
        ConfigurationError: The file cannot be read, lacks a column, has a line twice, or a cell
            that is no number.
    """
    try:
        reader = csv.DictReader(io.StringIO(read_text(path)), strict=True)
    except OSError as error:
        raise ConfigurationError(f"published table {path}: cannot be read: {error}") from error
    except ValueError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    try:
        numbered = [(reader.line_num, line) for line in reader]
    except csv.Error as error:
        raise ConfigurationError(f"{path}: line {reader.line_num}: not CSV: {error}") from error
    lines = [line for _, line in numbered]
    header = tuple(reader.fieldnames or ())
    numeric = [name for c in columns for name in (c.published, c.published_spread) if name]
    missing = [name for name in numeric if name not in header]
    if missing:
        raise ConfigurationError(
            f"{path}: no column {', '.join(missing)}; it has {', '.join(header)}"
        )
    labelled = tuple(
        name
        for name in header
        if name in label_columns or (name not in numeric and not _decimals(name, lines))
    )
    _refuse_unknown(path, labelled, {"leave-out": leave_out, "spread-as-fraction": fractions})
    table: dict[Key, dict[str, Entry]] = {}
    for number, line in numbered:
        where = f"{path}: line {number}"
        if None in line or None in line.values():
            raise ConfigurationError(f"{where}: not {len(header)} cells, as the header has")
        labels = {name: line[name].strip() for name in labelled}
        if _is_among(labels, leave_out):
            continue
        fraction = _is_among(labels, fractions)
        key = tuple(sorted(labels.items()))
        if key in table:
            raise ConfigurationError(f"{where}: {described(key)} stands there twice")
        table[key] = {
            c.metric: _entry(where, line, c, fraction=fraction) for c in columns if c.published
        }
    return PublishedTable(path, labelled, table)


def _refuse_unknown(
    path: Path, labelled: Sequence[str], options: Mapping[str, Sequence[Mapping[str, str]]]
) -> None:
    """Raise where an option names lines by a column that is none of the labels'."""
    for option, named in options.items():
        unknown = sorted({name for labels in named for name in labels} - set(labelled))
        if unknown:
            raise ConfigurationError(
                f"{path}: {option} names the column {', '.join(unknown)}; allowed: "
                f"{', '.join(labelled)}"
            )


def _decimals(name: str, lines: Iterable[Mapping[str, str]]) -> bool:
    """Return whether a column holds nothing but numbers, some of them with a decimal point."""
    cells = [(line.get(name) or "").strip() for line in lines]
    return any("." in cell for cell in cells) and all(_is_number(cell) for cell in cells if cell)


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _is_among(labels: Mapping[str, str], named: Sequence[Mapping[str, str]]) -> bool:
    return any(all(labels[k] == v for k, v in some.items()) for some in named)


def _entry(where: str, line: Mapping[str, str], column: Column, *, fraction: bool) -> Entry:
    value = _number(where, line, column.published)
    spread = _number(where, line, column.published_spread)
    unit = column.scale if fraction else column.published_spread_scale
    return Entry(value, None if spread is None else spread * unit)


def _number(where: str, line: Mapping[str, str], name: str) -> float | None:
    cell = line[name].strip() if name else ""
    if not cell:
        return None
    if not _is_number(cell):
        raise ConfigurationError(f"{where}: {name} is {cell!r}, which is no number")
    return float(cell)


def mismatches(
    table: PublishedTable, label_columns: Sequence[str], keys: Iterable[Key]
) -> list[str]:
    """Return what does not match between a published table and a study, in words; [] if all does.

    Args:
        table: The table.
        label_columns: The columns of the study's labels.
        keys: The labels of the study's lines that are said to be published.
    """
    where = f"published table {table.path}"
    if set(label_columns) != set(table.label_columns):
        return [
            f"{where}: its label columns are {', '.join(table.label_columns)}, and those of the "
            f"study's rows and axes {', '.join(label_columns)}; they have to be the same"
        ]
    ours, theirs = list(dict.fromkeys(keys)), list(table.lines)
    problems = []
    if absent := [key for key in ours if key not in table.lines]:
        problems.append(
            f"{where}: it has no line for {_listed(absent)}; correct the labels, or mark the row "
            "or the axis's value with published = false"
        )
    if extra := [key for key in theirs if key not in set(ours)]:
        problems.append(
            f"{where}: the study has nothing for its line {_listed(extra)}; add the rows, or name "
            "these lines in leave-out"
        )
    return problems


def described(key: Key) -> str:
    """Return the labels of a line for a message."""
    return ", ".join(f"{column} {label}" for column, label in key)


def _listed(keys: Sequence[Key]) -> str:
    shown = "; ".join(f"({described(key)})" for key in keys[:LISTED])
    more = len(keys) - LISTED
    return f"{shown} and {more} more" if more > 0 else shown
