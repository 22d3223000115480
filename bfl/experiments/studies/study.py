"""Studies: a base configuration, axes and rows that expand to runs with stable names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from bfl.configuration import Configuration, resolve
from bfl.configuration.configuration import Value
from bfl.errors import ConfigurationError
from bfl.experiments.run.simulation import DEFAULT_SUPERNODES, names_clients
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.published import Key, PublishedTable
from bfl.experiments.studies.scale import EXAMPLES, SEEDS, Scale, number_of, reduced, shown
from bfl.plugins import named_plugins, refuse_unnamed
from bfl.registry import Registry

if TYPE_CHECKING:
    from bfl.experiments.studies.figures import StudyFigure

SEED = "seed"
"""The axis over which tables and figures take means and spreads."""

IN_FILE = "at the scale of the study's file"
MORE_SEEDS = "more seeds than the study's file has"


@dataclass(frozen=True)
class Choice:
    """One value of an axis, one row, or a combination of these, such as a line of a table."""

    labels: Mapping[str, str]
    values: Mapping[str, Value] = field(default_factory=dict)
    name: str = ""
    published: bool = True

    @classmethod
    def of(cls, choices: Iterable[Choice]) -> Choice:
        """Return a combination of choices."""
        chosen = tuple(choices)
        return cls(
            {column: label for choice in chosen for column, label in choice.labels.items()},
            {key: value for choice in chosen for key, value in choice.values.items()},
            "_".join(choice.name for choice in chosen if choice.name),
            all(choice.published for choice in chosen),
        )

    @property
    def key(self) -> Key:
        """The labels, sorted by column."""
        return tuple(sorted(self.labels.items()))

    def named(self, column: str) -> str:
        """Return the label in a column, preceded by the column's name if it is a number or yes/no.

        Example:
            >>> line = Choice({"method": "FedBE", "epochs": "20"})
            >>> line.named("method"), line.named("epochs")
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
    cell: Choice
    labels: Mapping[str, str]
    values: Mapping[str, Value]

    @cached_property
    def configuration(self) -> Configuration:
        """The run's configuration, without a check of its data.

        The number of clients, if the study sets none, is 10, as in ``flower-simulation``. Where the
        partition finds the clients in the data, it is 0: it is not known here.
        """
        clients = self.values.get("clients")
        values = {**self.values, "clients": clients or DEFAULT_SUPERNODES}
        found = resolve(values, check_data=False)
        in_the_data = not clients and names_clients(found)
        return resolve({**values, "clients": 0}, check_data=False) if in_the_data else found

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return self.configuration.keys.rounds


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

    def pairs(self, cells: Iterable[Choice]) -> list[tuple[Choice, Choice]]:
        """Return pairs of lines, the better one first; with ``than``, of a line and itself."""
        by_labels = {cell.key: cell for cell in cells}
        ours = [c for c in by_labels.values() if self.better.items() <= c.labels.items()]
        if self.than:
            return [(cell, cell) for cell in ours]
        others = [by_labels.get(Choice({**cell.labels, **self.worse}).key) for cell in ours]
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
        trusted: Whether the plugins that it names are loaded; else the user has to name them.
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
    trusted: bool = True
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

    def cells(self) -> tuple[Choice, ...]:
        """Return the lines of the tables: row after row, the axes varying within a row."""
        return tuple(map(Choice.of, product(self.rows, *self.others.values())))

    def panels(self) -> tuple[Choice, ...]:
        """Return the panels of a figure: combinations of all axes except the seeds."""
        return tuple(map(Choice.of, product(*self.others.values())))

    def runs(self) -> tuple[Run, ...]:
        """Return all runs, in the order in which they are made.

        The first axis varies slowest and the rows fastest.
        """
        found = []
        for *choices, row in product(*self.axes.values(), self.rows):
            chosen = dict(zip(self.axes, choices, strict=True))
            # Sorted by axis, the seed last, so that names do not depend on the file's order.
            by_name = [chosen[axis] for axis in sorted(chosen, key=lambda n: (n == SEED, n))]
            whole = Choice.of((row, *choices))
            values = {**self.base, **whole.values}
            if not self.trusted:
                refuse_unnamed(named_plugins(values), str(self.source))
                values.pop("plugins", None)
            found.append(
                Run(
                    name=Choice.of((row, *by_name)).name or "run",
                    cell=Choice.of((row, *(c for name, c in chosen.items() if name != SEED))),
                    labels=whole.labels,
                    values=self.scale.reduced(values),
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
