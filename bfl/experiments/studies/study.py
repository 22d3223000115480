"""Studies: a base configuration, axes and rows, which expand to runs with stable names."""

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
    """A line of a table: a row and a choice of each axis but the seeds, by their labels."""

    labels: Mapping[str, str]
    published: bool = True

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """The labels in an order that does not depend on the file's."""
        return tuple(sorted(self.labels.items()))

    def named(self, column: str) -> str:
        """Return its label in a column, after the column's name where it says nothing alone.

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
        name: Its name, which depends on its own labels alone.
        cell: The line of the table that it belongs to.
        labels: The labels of its row and of its choice of every axis, by column.
        values: All keys that the study sets for it.
    """

    name: str
    cell: Cell
    labels: Mapping[str, str]
    values: Mapping[str, Value]


def _each(given: Any) -> Any:
    """Return a list for a single label or table, which may stand for itself."""
    return [given] if isinstance(given, str | Mapping) else given


Labels = Annotated[list[str], BeforeValidator(_each), Field(min_length=1)]
"""Labels of a column; in a file one may stand for itself."""


def slug(label: str) -> str:
    """Return a label as a part of a folder's name.

    Example:
        >>> slug("MC Dropout"), slug("n/a"), slug("Dirichlet (α = 0.5)")
        ('mc-dropout', 'n-a', 'dirichlet-0.5')
    """
    return re.sub(r"[^a-z0-9.+]+", "-", label.lower()).strip("-.")


study_figures: Registry[StudyFigure] = Registry("study figure", "bfl.experiments.studies.figures")
"""The kinds of figures; here, as files are checked before anything is drawn."""


class FigureSpec(BaseModel):
    """A figure that a study asks for, a table ``[[figures]]``; other keys are the kind's settings.

    Attributes:
        kind: A registered study figure.
        rows: The rows that it shows: those that have, for all columns of one of these, one of the
            labels; empty: all rows.
    """

    model_config = ConfigDict(extra="allow", strict=True)

    name: Annotated[str, AfterValidator(slug)]
    kind: str
    title: str = ""
    rows: Annotated[list[dict[str, Labels]], BeforeValidator(_each)] = Field(default_factory=list)

    @property
    def settings(self) -> dict[str, Any]:
        """The kind's own settings."""
        return self.model_extra or {}

    def shows(self, labels: Mapping[str, str]) -> bool:
        """Return whether a row with these labels is shown."""
        return not self.rows or any(
            all(labels.get(column) in allowed for column, allowed in choice.items())
            for choice in self.rows
        )


@dataclass(frozen=True)
class Order:
    """An order of two lines that a paper claims, or that one expects.

    Attributes:
        worse: Labels of the worse one; in all columns not named the two lines have the same.
        than: The metric of another column, in which the better lines themselves are worse; empty:
            two lines are compared in one column.
        beforehand: Whether it was declared before there were runs; else it cannot be found.
        published: The paper's difference, in the column's unit, where there is no published table.
    """

    metric: str
    better: Mapping[str, str]
    worse: Mapping[str, str]
    than: str = ""
    beforehand: bool = True
    published: float | None = None

    def pairs(self, cells: Iterable[Cell]) -> list[tuple[Cell, Cell]]:
        """Return pairs of lines, the better one first; twice the same with ``than``."""
        by_labels = {cell.key: cell for cell in cells}
        ours = [c for c in by_labels.values() if self.better.items() <= c.labels.items()]
        if self.than:
            return [(cell, cell) for cell in ours]
        others = [by_labels.get(Cell({**cell.labels, **self.worse}).key) for cell in ours]
        return [(a, b) for a, b in zip(ours, others, strict=True) if b and a != b]


@dataclass(frozen=True)
class Study:
    """Runs that are made and looked at together.

    Attributes:
        axes: Choices that combine freely with those of the other axes and with the rows, by the
            axis's name, in the order of the file.
        rows: Choices that do not; one without labels where the file has none.
        columns: The numbers that its tables show.
        spread: "standard-deviation" or "standard-error", over the seeds.
        figures: The figures asked for; empty: one of each kind.
        reuse: Names of other studies whose results are taken where the configurations are equal.
        orders: The orders whose truth is looked at.
        tables: The file's content, with that of the files that it extends.
        published: The published table, if there is one.
        scale: The reduction, see ``scaled``.
        note: The reduction in words, and seeds added; empty: none.
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
        """The reduction in words, or the images that the file itself leaves.

        A file may be a reduction of its own, so a study that is not scaled down is not called full.
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
        """The axes but that of the seeds."""
        return {name: choices for name, choices in self.axes.items() if name != SEED}

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The columns that tell the lines of a table apart."""
        return (*self.rows[0].labels, *self.others)

    def cells(self) -> tuple[Cell, ...]:
        """Return the lines of the tables: row after row, the axes varying within a row."""
        return tuple(map(_cell, product(self.rows, *self.others.values())))

    def panels(self) -> tuple[Mapping[str, str], ...]:
        """Return the labels of every combination of the axes but the seeds, one for each panel."""
        return tuple(map(_labels, product(*self.others.values())))

    def runs(self) -> tuple[Run, ...]:
        """Return all runs, in the order in which they are made.

        The first axis varies slowest and the rows fastest: with the seeds in front, all rows have
        their first run before any has its second.
        """
        found = []
        for *choices, row in product(*self.axes.values(), self.rows):
            chosen = dict(zip(self.axes, choices, strict=True))
            # Axes by their names, and the seed at the end.
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
        """Return the study with the seeds that a reduction leaves, and its runs as that says.

        Raises:
            ConfigurationError: Seeds are to be fewer or more, and the study has no axis of seeds,
                or to be more, and it is not known which it has, or they set other keys as well; or
                a share of the examples is to become a number.
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
        """Return further seeds: the smallest whole numbers that the study does not have."""
        there = [choice.values.get(SEED) for choice in self.axes[SEED]]
        alone = all(choice.values.keys() == {SEED} for choice in self.axes[SEED])
        if number > 0 and not (alone and all(type(seed) is int for seed in there)):
            raise ConfigurationError(
                f"--scale: seeds can be at most {len(there)}, as the axis 'seed' of {self.source} "
                "has values that are no number or set other keys as well; write more of them into "
                "the file"
            )
        free = islice((seed for seed in count() if seed not in there), max(0, number))
        return [Choice({SEED: str(seed)}, {SEED: seed}, f"{SEED}-{seed}") for seed in free]

    def _changes(self, before: Sequence[Run], after: Study) -> str:
        """Return a reduction in words: from what the study has to what is left of it."""
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
