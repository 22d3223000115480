"""Study: a base configuration, axes and rows, which expand to runs with stable names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from bfl.configuration.configuration import Value
from bfl.data.partitions import partitions
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.published import PublishedTable

SEED = "seed"
"""The axis over which tables and figures take means and spreads."""


@dataclass(frozen=True)
class Choice:
    """One value of an axis, or one row.

    Attributes:
        labels: What it is called, by column of the tables.
        values: The configuration keys that it sets.
        name: Its part of the runs' names.
        published: Whether the published table has it.
    """

    labels: Mapping[str, str]
    values: Mapping[str, Value]
    name: str
    published: bool = True


@dataclass(frozen=True)
class Axis:
    """Choices that combine freely with those of the other axes and with the rows.

    Attributes:
        name: Its name, which is the column of its labels.
        choices: Its values, at least one.
    """

    name: str
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class Cell:
    """Line of a table: a row and a choice of each axis but the seeds.

    Attributes:
        labels: Their labels by column.
        published: Whether the published table has it.
    """

    labels: Mapping[str, str]
    published: bool = True

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """The labels in an order that does not depend on the file's."""
        return tuple(sorted(self.labels.items()))

    def named(self, column: str) -> str:
        """Return its label in a column, with what it is a label of where it says nothing alone.

        Example:
            >>> cell = Cell({"method": "FedBE", "epochs": "20"})
            >>> cell.named("method"), cell.named("epochs")
            ('FedBE', 'epochs 20')
        """
        text = self.labels[column]
        return f"{column} {text}" if text in ("yes", "no") or _is_number(text) else text


@dataclass(frozen=True)
class Run:
    """One run of a study.

    Attributes:
        name: Its name, which depends on its own labels alone.
        cell: The line of the table that it belongs to.
        labels: The labels of its row and of its choice of every axis, by column.
        values: All keys that the study sets for it.
    """

    name: str
    cell: Cell
    labels: Mapping[str, str]
    values: Mapping[str, Value]


@dataclass(frozen=True)
class FigureSpec:
    """A figure that a study asks for.

    Attributes:
        name: The name of its file.
        kind: What is drawn: a registered study figure.
        title: What stands above it.
        rows: Which rows it shows: those that have, for all columns of one of these, one of the
            labels; empty: all rows.
        settings: The kind's own settings.
    """

    name: str
    kind: str
    title: str
    rows: tuple[Mapping[str, tuple[str, ...]], ...]
    settings: Mapping[str, Any]

    def shows(self, labels: Mapping[str, str]) -> bool:
        """Return whether a row with these labels is shown."""
        return not self.rows or any(
            all(labels.get(column) in allowed for column, allowed in choice.items())
            for choice in self.rows
        )


@dataclass(frozen=True)
class Order:
    """An order that a paper claims, or that one expects.

    Attributes:
        metric: In what: the metric of one of the columns.
        better: Labels of the better line.
        worse: Labels of the worse one; in all columns not named the two lines have the same.
        than: The metric of another column, in which the better lines themselves are worse; empty:
            two lines are compared in one column.
        beforehand: Whether it was declared before there were runs; else it cannot be found.
        published: The difference that the paper has, in the column's unit, where the study has no
            published table.
    """

    metric: str
    better: Mapping[str, str]
    worse: Mapping[str, str]
    than: str = ""
    beforehand: bool = True
    published: float | None = None

    def pairs(self, cells: Iterable[Cell]) -> list[tuple[Cell, Cell]]:
        """Return the lines that it is about, the better one first; twice the same with ``than``."""
        if self.than:
            return [(c, c) for c in cells if self.better.items() <= c.labels.items()]
        by_labels = {cell.key: cell for cell in cells}
        found = []
        for cell in by_labels.values():
            if self.better.items() <= cell.labels.items():
                other = by_labels.get(Cell({**cell.labels, **self.worse}).key)
                found += [(cell, other)] if other and other != cell else []
        return found


@dataclass(frozen=True)
class Study:
    """Runs that are made and looked at together.

    Attributes:
        name: The name of its folder.
        title: What it is, for people.
        base: The keys of all runs.
        axes: What combines freely, in the order of the file.
        rows: What does not combine freely; one without labels where the file has none.
        columns: What the tables show.
        spread: "standard-deviation" or "standard-error", over the seeds.
        published: The published table, if there is one.
        figures: The figures asked for; empty: one of each kind.
        compare: The label columns whose lines are compared with each other, whatever they differ
            in; empty: see ``compared``.
        orders: The orders whose truth is looked at.
        least_steps: The steps that a client makes in a round at least; a reduction of the images
            that leaves fewer is refused.
        reuse: Names of other studies whose runs are taken where they are the same.
        source: The file.
        tables: What the file says, with those that it extends.
    """

    name: str
    title: str
    base: Mapping[str, Value]
    axes: tuple[Axis, ...]
    rows: tuple[Choice, ...]
    columns: tuple[Column, ...]
    spread: str
    published: PublishedTable | None
    figures: tuple[FigureSpec, ...]
    reuse: tuple[str, ...]
    source: Path
    compare: tuple[str, ...] = ()
    orders: tuple[Order, ...] = ()
    least_steps: int = 0
    tables: Mapping[str, Any] = field(default_factory=dict)

    @property
    def seeds(self) -> Axis | None:
        """The axis of the seeds, if there is one."""
        return next((axis for axis in self.axes if axis.name == SEED), None)

    @property
    def others(self) -> tuple[Axis, ...]:
        """The axes but that of the seeds."""
        return tuple(axis for axis in self.axes if axis.name != SEED)

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The columns that say what a line of a table is about."""
        return (*self.rows[0].labels, *(axis.name for axis in self.others))

    @property
    def compared(self) -> tuple[str, ...]:
        """The label columns whose lines are compared.

        By default the rows', and without rows the axes' but those that make the setting.
        """
        setting = set(setting_keys())
        methods = (
            axis.name
            for axis in self.others
            if not any(setting & choice.values.keys() for choice in axis.choices)
        )
        return self.compare or tuple(self.rows[0].labels) or tuple(methods)

    def cells(self) -> tuple[Cell, ...]:
        """Return the lines of the tables: row after row, the axes varying within a row."""
        return tuple(_cell(choices) for choices in self._lines())

    def _lines(self) -> Iterable[tuple[Choice, ...]]:
        return product(self.rows, *(axis.choices for axis in self.others))

    def panels(self) -> tuple[Mapping[str, str], ...]:
        """Return the labels of every combination of the axes but the seeds, one for each panel."""
        axes = [axis.choices for axis in self.others]
        return tuple(_labels(choices) for choices in product(*axes))

    def runs(self) -> tuple[Run, ...]:
        """Return all runs, in the order in which they are made.

        The first axis varies slowest and the rows fastest: with the seeds in front, all rows have
        their first run before any has its second.
        """
        axes = [axis.choices for axis in self.axes]
        seeds = self.seeds.choices if self.seeds else ()
        return tuple(
            Run(
                name=self._name(row, choices),
                cell=_cell([c for c in (row, *choices) if c not in seeds]),
                labels=_labels((row, *choices)),
                values={**self.base, **_values((row, *choices))},
            )
            for *choices, row in product(*axes, self.rows)
        )

    def _name(self, row: Choice, choices: Sequence[Choice]) -> str:
        """Return a run's name: its row, its axes by their names, and at the end its seed."""
        chosen = zip(self.axes, choices, strict=True)
        in_order = sorted(chosen, key=lambda pair: (pair[0].name == SEED, pair[0].name))
        parts = [row.name, *(choice.name for _, choice in in_order)]
        return "_".join(filter(None, parts)) or "run"


def setting_keys() -> tuple[str, ...]:
    """Return the keys that make a setting: the data, who holds which of them, and the network."""
    of_partitions = (key for partition in partitions.classes() for key in partition.setting_keys())
    return ("dataset", "model", "clients", "partition", *dict.fromkeys(of_partitions))


def _cell(choices: Iterable[Choice]) -> Cell:
    chosen = tuple(choices)
    return Cell(_labels(chosen), all(choice.published for choice in chosen))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _labels(choices: Iterable[Choice]) -> dict[str, str]:
    return {column: label for choice in choices for column, label in choice.labels.items()}


def _values(choices: Iterable[Choice]) -> dict[str, Value]:
    return {key: value for choice in choices for key, value in choice.values.items()}


def slug(label: str) -> str:
    """Return a label as a part of a folder's name.

    Example:
        >>> slug("MC Dropout"), slug("n/a"), slug("Dirichlet (α = 0.5)")
        ('mc-dropout', 'n-a', 'dirichlet-0.5')
    """
    return re.sub(r"[^a-z0-9.+]+", "-", label.lower()).strip("-.")
