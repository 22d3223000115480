"""Studies: a base configuration, axes and rows that expand to runs with stable names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from bfl.configuration.configuration import Value
from bfl.errors import ConfigurationError
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.published import PublishedTable
from bfl.experiments.studies.scale import EXAMPLES, SEEDS, Scale, number_of, reduced, shown
from bfl.registry import Registry

if TYPE_CHECKING:
    from bfl.experiments.studies.figures import StudyFigure

SEED = "seed"
"""The axis over which tables and figures take means and spreads."""

IN_FILE = "at the scale of the study's file"
MORE_SEEDS = "more seeds than the study's file has"


@dataclass(frozen=True)
class Choice:
    """One value of an axis, or one row."""

    labels: Mapping[str, str]
    values: Mapping[str, Value]
    name: str
    published: bool = True


@dataclass(frozen=True)
class Cell:
    """A line of a table: the labels of a row and of a choice of each axis except the seeds."""

    labels: Mapping[str, str]
    published: bool = True

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """The labels, sorted by column."""
        return tuple(sorted(self.labels.items()))

    def named(self, column: str) -> str:
        """Return the label in a column, preceded by the column's name if it is a number or yes/no.

        Example:
            >>> cell = Cell({"method": "FedBE", "epochs": "20"})
            >>> cell.named("method"), cell.named("epochs")
            ('FedBE', 'epochs 20')
        """
        text = self.labels[column]
        alone = text not in ("yes", "no") and not re.fullmatch(r"[-+.\d]+(e[-+]?\d+)?", text)
        return text if alone else f"{column} {text}"


@dataclass(frozen=True)
class Run:
    """One run of a study.

    Attributes:
        name: The run's name, which depends on its labels alone.
        cell: The table's line that it belongs to.
        labels: The labels of its row and of its choice of each axis, by column.
        values: The keys that the study sets for it.
    """

    name: str
    cell: Cell
    labels: Mapping[str, str]
    values: Mapping[str, Value]


def _each(given: Any) -> Any:
    """Return a list; a single label or table becomes a list of one."""
    return [given] if isinstance(given, str | Mapping) else given


Labels = Annotated[list[str], BeforeValidator(_each), Field(min_length=1)]
"""Labels of a column; a file may give a single one without a list."""


def slug(label: str) -> str:
    """Return a label as a part of a folder name.

    Example:
        >>> slug("MC Dropout"), slug("n/a"), slug("Dirichlet (α = 0.5)")
        ('mc-dropout', 'n-a', 'dirichlet-0.5')
    """
    return re.sub(r"[^a-z0-9.+]+", "-", label.lower()).strip("-.")


study_figures: Registry[StudyFigure] = Registry("study figure", "bfl.experiments.studies.figures")
"""The kinds of study figures, registered here because reading a study checks them."""


class FigureSpec(BaseModel):
    """A study's figure, a table ``[[figures]]``; further keys are the kind's settings.

    Attributes:
        kind: A registered study figure.
        rows: The rows to show, as allowed labels by column; a row matches one of these if it has
            an allowed label in each of its columns. Empty: all rows.
    """

    model_config = ConfigDict(extra="allow", strict=True)

    name: Annotated[str, AfterValidator(slug)]
    kind: str
    title: str = ""
    rows: Annotated[list[dict[str, Labels]], BeforeValidator(_each)] = Field(default_factory=list)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the figure's kind."""
        return self.model_extra or {}

    def shows(self, labels: Mapping[str, str]) -> bool:
        """Return whether the figure shows a row with these labels."""
        return not self.rows or any(
            all(labels.get(column) in allowed for column, allowed in choice.items())
            for choice in self.rows
        )


@dataclass(frozen=True)
class Order:
    """A claimed or expected ranking of two lines by a metric.

    Attributes:
        worse: Labels of the worse line, in the columns where it differs from the better one.
        than: A metric in which the better lines themselves are worse, in place of other lines;
            empty: two lines are compared by one metric.
        beforehand: Whether it was declared before there were runs; otherwise its verdict cannot be
            "found".
        published: The paper's difference, in the column's unit, where there is no published table.
    """

    metric: str
    better: Mapping[str, str]
    worse: Mapping[str, str]
    than: str = ""
    beforehand: bool = True
    published: float | None = None

    def pairs(self, cells: Iterable[Cell]) -> list[tuple[Cell, Cell]]:
        """Return pairs of lines, the better one first; with ``than``, of a line and itself."""
        by_labels = {cell.key: cell for cell in cells}
        ours = [c for c in by_labels.values() if self.better.items() <= c.labels.items()]
        if self.than:
            return [(cell, cell) for cell in ours]
        others = [by_labels.get(Cell({**cell.labels, **self.worse}).key) for cell in ours]
        return [(a, b) for a, b in zip(ours, others, strict=True) if b and a != b]


@dataclass(frozen=True)
class Study:
    """A set of runs that are made and evaluated together.

    Attributes:
        axes: Choices by axis, in the file's order; the runs are the product of all axes and rows.
        rows: Sets of keys that vary together; a single one without labels where the file has none.
        columns: The columns of its tables.
        spread: "standard-deviation" or "standard-error", over the seeds.
        figures: The figures to draw; empty: one of each kind.
        reuse: Names of other studies, whose results are reused where the configurations are equal.
        orders: The orders to test.
        tables: The file's content, merged with the files that it extends.
        published: The published table, if there is one.
        scale: The reduction, see ``scaled``.
        note: The reduction and added seeds, in words; empty: none.
    """

    name: str
    title: str
    base: Mapping[str, Value]
    axes: Mapping[str, tuple[Choice, ...]]
    rows: tuple[Choice, ...]
    columns: tuple[Column, ...]
    spread: str
    figures: tuple[FigureSpec, ...]
    reuse: tuple[str, ...]
    orders: tuple[Order, ...]
    source: Path
    tables: Mapping[str, Any]
    published: PublishedTable | None = None
    scale: Scale = field(default_factory=Scale)
    note: str = ""

    @property
    def folder_name(self) -> str:
        """The name of the study's folder."""
        return f"{self.name}{self.scale.suffix}"

    @property
    def said(self) -> str:
        """The reduction in words; without one, the numbers of examples that the file sets.

        The file itself may be a reduction, so an unscaled study is not called full.
        """
        if self.note and not self.note.startswith(MORE_SEEDS):
            return self.note
        left = []
        for name in EXAMPLES:
            given = dict.fromkeys(run.values.get(name, 0) for run in self.runs())
            numbers = [number for number in given if isinstance(number, int | float)]
            if any(numbers):
                left.append(f"{name} {' and '.join(shown(name, n) for n in numbers)}")
        return ", ".join(filter(None, [IN_FILE, *left, self.note]))

    @property
    def others(self) -> dict[str, tuple[Choice, ...]]:
        """The axes except the seeds."""
        return {name: choices for name, choices in self.axes.items() if name != SEED}

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The columns that identify a line of a table."""
        return (*self.rows[0].labels, *self.others)

    def cells(self) -> tuple[Cell, ...]:
        """Return the lines of the tables: row after row, the axes varying within a row."""
        return tuple(map(_cell, product(self.rows, *self.others.values())))

    def panels(self) -> tuple[Mapping[str, str], ...]:
        """Return the labels of each panel: a combination of all axes except the seeds."""
        return tuple(map(_labels, product(*self.others.values())))

    def runs(self) -> tuple[Run, ...]:
        """Return all runs, in the order in which they are made.

        The first axis varies slowest and the rows fastest.
        """
        found = []
        for *choices, row in product(*self.axes.values(), self.rows):
            chosen = dict(zip(self.axes, choices, strict=True))
            # Sorted by axis, the seed last, so that names do not depend on the file's order.
            parts = [chosen[axis].name for axis in sorted(chosen, key=lambda n: (n == SEED, n))]
            all_of_it = (row, *choices)
            found.append(
                Run(
                    name="_".join(filter(None, (row.name, *parts))) or "run",
                    cell=_cell([c for name, c in [("", row), *chosen.items()] if name != SEED]),
                    labels=_labels(all_of_it),
                    values=self.scale.reduced(
                        {**self.base, **{k: v for c in all_of_it for k, v in c.values.items()}}
                    ),
                )
            )
        return tuple(found)

    def scaled(self, scale: Scale) -> Study:
        """Return the study at another scale, with fewer or more seeds if the scale says so.

        Raises:
            ConfigurationError: The study has no axis of seeds; seeds cannot be added, as their
                values are not numbers or set other keys; or a share of examples becomes a number.
        """
        axes = dict(self.axes)
        if SEEDS in scale.amounts:
            if SEED not in axes:
                raise ConfigurationError(f"--scale: {self.source} has no axis 'seed'")
            seeds, amount = axes[SEED], scale.amounts[SEEDS]
            number = int(amount) if amount >= 1 else reduced(len(seeds), amount)
            axes[SEED] = (*seeds[:number], *self._further_seeds(number - len(seeds)))
        before = replace(self, axes=axes)
        after = replace(before, scale=scale)
        return replace(after, note=self._changes(before.runs(), after))

    def _further_seeds(self, number: int) -> list[Choice]:
        """Return additional seeds: the smallest whole numbers that the study does not have."""
        there = [choice.values.get(SEED) for choice in self.axes[SEED]]
        alone = all(choice.values.keys() == {SEED} for choice in self.axes[SEED])
        if number > 0 and not (alone and all(type(seed) is int for seed in there)):
            raise ConfigurationError(
                f"--scale: seeds can be at most {len(there)}, as the axis 'seed' of {self.source} "
                "has values that are not numbers, or set other keys; write more seeds into the file"
            )
        free = islice((seed for seed in count() if seed not in there), max(0, number))
        return [Choice({SEED: str(seed)}, {SEED: seed}, f"{SEED}-{seed}") for seed in free]

    def _changes(self, before: Sequence[Run], after: Study) -> str:
        """Return the changes from this study to a scaled one, in words."""
        said, more = [], ""
        for name in after.scale.amounts:
            if name == SEEDS:
                was, now = (len(study.axes[SEED]) for study in (self, after))
                changes = f"{was} → {now}"
                if now > was:
                    more = f"{MORE_SEEDS}: {changes}"
                    continue
            else:
                pairs = zip(before, after.runs(), strict=True)
                changes = " and ".join(
                    dict.fromkeys(
                        " → ".join(shown(name, number_of(run.values, name)) for run in pair)
                        for pair in pairs
                    )
                )
            said.append(f"{name} {changes}")
        down = f"scaled down: {', '.join(said)}" if said else ""
        return ", ".join(filter(None, (down, more)))


def _cell(choices: Iterable[Choice]) -> Cell:
    chosen = tuple(choices)
    return Cell(_labels(chosen), all(choice.published for choice in chosen))


def _labels(choices: Iterable[Choice]) -> dict[str, str]:
    return {column: label for choice in choices for column, label in choice.labels.items()}
