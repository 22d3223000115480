"""Published tables: read from CSV, and matched to a study by labels, completely or not at all."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bfl.errors import ConfigurationError
from bfl.experiments.studies.columns import Column
from bfl.texts import read_text

if TYPE_CHECKING:
    import pandas as pd

LISTED = 6
"""Lines that do not match which a message names, at most."""

Key = tuple[tuple[str, str], ...]
"""The labels of a line by column, sorted by column."""

Labels = Sequence[Mapping[str, str]]


class Entry(NamedTuple):
    """A published number and its spread in the unit of its column; None: not published."""

    value: float | None = None
    spread: float | None = None


@dataclass(frozen=True)
class PublishedTable:
    """The numbers of a published table.

    Attributes:
        path: The file.
        text: Its content.
        label_columns: The columns that tell its lines apart.
        lines: Entries by metric, by the labels of the line.
        notes: Notes on its numbers, which tables print.
    """

    path: Path
    text: str
    label_columns: tuple[str, ...]
    lines: Mapping[Key, Mapping[str, Entry]]
    notes: tuple[str, ...] = ()

    def entry(self, key: Key, metric: str) -> Entry:
        """Return the number of a line, or one without value where there is none."""
        return self.lines.get(key, {}).get(metric, Entry())


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
        path: A CSV file with a header. The columns that ``columns`` names hold numbers, or nothing
            where none was published; all others hold labels, but for columns of decimal numbers
            that the study does not ask for.
        columns: The study's columns.
        label_columns: The columns of the study's labels.
        leave_out: Labels by column; lines that have all labels of one of these are left out.
        fractions: Labels in the same form; lines whose spread is printed as a fraction of 1 where
            the value is in percent, or in what else ``scale`` makes of it.
        text: The file's content; None: it is read.

    Raises:
        ConfigurationError: The file cannot be read, lacks a column, has a line twice, or a cell
            that is no number.
    """
    import pandas as pd

    text, table = _cells(path, text)
    numeric = [name for c in columns for name in (c.published, c.published_spread) if name]
    if missing := [name for name in numeric if name not in table]:
        raise ConfigurationError(
            f"{path}: no column {', '.join(missing)}; it has {', '.join(table)}"
        )
    labelled = [
        name
        for name in table
        if name in label_columns or (name not in numeric and not _decimals(table[name]))
    ]
    for option, named in (("leave-out", leave_out), ("spread-as-fraction", fractions)):
        if unknown := {name for labels in named for name in labels} - {*labelled}:
            raise ConfigurationError(
                f"{path}: {option} names the column {min(unknown)}; allowed: {', '.join(labelled)}"
            )
    for name in numeric:
        numbers = pd.to_numeric(table[name].replace("", "nan"), errors="coerce")
        if (wrong := numbers.isna() & (table[name] != "")).any():
            line, cell = wrong.idxmax(), table[name][wrong.idxmax()]
            raise ConfigurationError(
                f"{path}: line {line + 2}: {name} is {cell!r}, which is no number"
            )
        table[name] = numbers
    lines: dict[Key, dict[str, Entry]] = {}
    for row in table.to_dict("records"):
        key = tuple(sorted((name, row[name]) for name in labelled))
        if _is_among(row, leave_out):
            continue
        if key in lines:
            raise ConfigurationError(f"{path}: {_described(key)} stands there twice")
        fraction = _is_among(row, fractions)
        lines[key] = {c.metric: _entry(row, c, fraction) for c in columns if c.published}
    return PublishedTable(path, text, tuple(labelled), lines)


def _cells(path: Path, text: str | None) -> tuple[str, pd.DataFrame]:
    """Return the text of a CSV file and its cells as text."""
    import pandas as pd

    try:
        text = read_text(path) if text is None else text
        header, *rows = (row for row in csv.reader(io.StringIO(text), strict=True) if row)
    except OSError as error:
        raise ConfigurationError(f"published table {path}: cannot be read: {error}") from error
    except (ValueError, csv.Error) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ConfigurationError(f"{path}: line {number}: not {len(header)} cells")
    table = pd.DataFrame(rows, columns=header, dtype=str)
    return text, table.apply(lambda column: column.str.strip())


def _decimals(column: pd.Series) -> bool:
    """Return whether a column holds nothing but numbers, some of them with a decimal point."""
    import pandas as pd

    filled = column[column != ""]
    numbers = pd.to_numeric(filled, errors="coerce").notna().all()
    return bool(numbers and filled.str.contains(".", regex=False).any())


def _is_among(row: Mapping[str, str], named: Labels) -> bool:
    return any(some.items() <= row.items() for some in named)


def _entry(row: Mapping[str, float], column: Column, fraction: bool) -> Entry:
    value = row[column.published]
    spread = row.get(column.published_spread, float("nan"))
    spread *= column.scale if fraction else column.published_spread_scale
    return Entry(None if value != value else value, None if spread != spread else spread)


def mismatches(
    table: PublishedTable, label_columns: Sequence[str], keys: Iterable[Key]
) -> list[str]:
    """Return the differences between a published table's lines and a study's; [] if all match.

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
    ours = dict.fromkeys(keys)
    problems = []
    if absent := [key for key in ours if key not in table.lines]:
        problems.append(
            f"{where}: it has no line for {_listed(absent)}; correct the labels, or mark the row "
            "or the axis's value with published = false"
        )
    if extra := [key for key in table.lines if key not in ours]:
        problems.append(
            f"{where}: the study has nothing for its line {_listed(extra)}; add the rows, or name "
            "these lines in leave-out"
        )
    return problems


def _described(key: Key) -> str:
    return ", ".join(f"{column} {label}" for column, label in key)


def _listed(keys: Sequence[Key]) -> str:
    more = f" and {len(keys) - LISTED} more" if len(keys) > LISTED else ""
    return "; ".join(f"({_described(key)})" for key in keys[:LISTED]) + more
