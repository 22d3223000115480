"""A study: a TOML file whose base, axes and rows expand to runs with stable names."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic

from bfl import files, texts
from bfl.configuration import Configuration, resolve
from bfl.configuration.settings import Value, refused_values
from bfl.configuration.sources import read_toml
from bfl.errors import ConfigurationError, unknown_name
from bfl.experiments.run import simulation
from bfl.experiments.studies.columns import CHECKED, Column, Figure, default_columns, slug
from bfl.plugins import named_plugins
from bfl.registry import STRICT

SEED = "seed"
"""The axis over which tables and figures take means and spreads."""

ROW = "row"  # the label column of rows whose label is a string

GIVEN_BY_THE_RUNNER = ("name", "output-dir", "resume", "data-dir")
"""Keys of a run's place, which the study's folder and the machine decide."""

Key = tuple[tuple[str, str], ...]  # the labels of a line by column, sorted by column

Number = tuple[float | None, float | None]
"""A published number and its spread; None where there is none."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """One value of an axis, one row, or a combination of these, such as a line of a table."""

    labels: Mapping[str, str]
    values: Mapping[str, Value] = dataclasses.field(default_factory=dict)
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

    def label_with_column(self, column: str) -> str:
        """Return the label in a column, preceded by the column's name if it is a number or yes/no.

        Example:
            >>> line = Choice({"method": "FedBE", "epochs": "20"})
            >>> line.label_with_column("method"), line.label_with_column("epochs")
            ('FedBE', 'epochs 20')
        """
        text = self.labels[column]
        alone = text not in ("yes", "no") and not re.fullmatch(r"[-+.\d]+(e[-+]?\d+)?", text)
        return text if alone else f"{column} {text}"


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a study, whose name depends on its labels alone; ``cell`` is its table's line."""

    name: str
    cell: Choice
    labels: Mapping[str, str]
    values: Mapping[str, Value]

    @cached_property
    def configuration(self) -> Configuration:
        """The run's configuration, without a check of its data; of 10 clients, if none are given.

        Where the partition finds the clients in the data, their number is 0: it is not known here.
        """
        clients = self.values.get("clients")
        values = {**self.values, "clients": clients or simulation.DEFAULT_SUPERNODES}
        found = resolve(values, check_data=False)
        in_the_data = not clients and simulation.names_clients(found)
        return resolve({**values, "clients": 0}, check_data=False) if in_the_data else found


class Claim(pydantic.BaseModel):
    """A claimed ranking of two lines by a metric.

    Attributes:
        worse: Labels of the worse line, in the columns where it differs from the better one.
        than: A metric in which the better lines themselves are worse; empty: lines are compared.
        beforehand: Whether it was declared before there were runs; only such claims are tested.
        published: The paper's difference, in the column's unit, where there is no published table.
    """

    model_config = STRICT

    metric: str
    better: dict[str, str] = pydantic.Field(min_length=1)
    worse: dict[str, str] = {}
    than: str = ""
    beforehand: bool = True
    published: float | None = None

    @pydantic.model_validator(mode="after")
    def _compares_lines_or_metrics(self) -> Self:
        if bool(self.worse) == bool(self.than):
            raise ValueError("either worse, other lines, or than, another metric of these")
        return self

    def pairs(self, cells: Iterable[Choice]) -> list[tuple[Choice, Choice]]:
        """Return pairs of lines, the better one first; with ``than``, of a line and itself."""
        by_labels = {cell.key: cell for cell in cells}
        ours = [c for c in by_labels.values() if self.better.items() <= c.labels.items()]
        if self.than:
            return [(cell, cell) for cell in ours]
        others = [by_labels.get(Choice({**cell.labels, **self.worse}).key) for cell in ours]
        return [(a, b) for a, b in zip(ours, others, strict=True) if b and a != b]


def _combinations(tables: Any) -> Any:
    """Return a claim for each combination of what a claim's lists have."""
    if not (isinstance(tables, list) and all(isinstance(table, Mapping) for table in tables)):
        return tables

    def each(given: Any) -> list[Any]:
        if isinstance(given, Mapping):
            values = itertools.product(*map(each, given.values()))
            return [dict(zip(given, chosen, strict=True)) for chosen in values]
        return given if isinstance(given, list) else [given]

    found = []
    for table in tables:
        lists = {key: each(table[key]) for key in ("metric", "better", "worse") if key in table}
        chosen = [dict(zip(lists, one, strict=True)) for one in itertools.product(*lists.values())]
        numbers = each(table.get("published"))
        if len(numbers) not in (1, len(chosen)):
            raise ValueError(f"published numbers, one or {len(chosen)}, not {len(numbers)}")
        pairs = zip(chosen, itertools.cycle(numbers), strict=False)
        found += [{**table, **claim, "published": number} for claim, number in pairs]
    return found


class Published(pydantic.BaseModel):
    """The table ``[published]``, whose numbers are in the columns' units.

    Attributes:
        file: A CSV file with a header, in the study's folder. Cells of numbers may be empty.
        leave_out: Labels by column; lines that match all labels of one of these are left out.
        notes: What has to be known of the numbers.
    """

    model_config = STRICT

    file: str = pydantic.Field(min_length=1)
    leave_out: list[dict[str, str]] = []
    notes: list[str] = []
    _text: str = ""
    _lines: dict[Key, dict[str, Number]] = pydantic.PrivateAttr(default_factory=dict)

    @property
    def text(self) -> str:
        """The file's content."""
        return self._text

    @property
    def lines(self) -> Mapping[Key, Mapping[str, Number]]:
        """The numbers with their spreads, by line and metric."""
        return self._lines

    def entry(self, key: Key, metric: str) -> Number:
        """Return a line's number for a metric with its spread."""
        return self._lines.get(key, {}).get(metric, (None, None))

    def read(self, folder: Path, study: Study) -> None:
        """Read the file, whose lines must be those of the study."""
        path = folder / self.file
        where = f"published table {path}"
        try:
            self._text = texts.decoded(files.read_regular(path))
            header, *rows = csv.reader(self._text.splitlines(keepends=True), strict=True)
            for row in rows:
                line = dict(zip(header, map(str.strip, row), strict=True))
                if any(labels.items() <= line.items() for labels in self.leave_out):
                    continue
                key = tuple(sorted((name, line[name]) for name in study.label_columns))
                if key in self._lines:
                    raise ValueError(f"two lines {key}")
                self._lines[key] = {}
                for column in (column for column in study.columns if column.published):
                    value, spread = (
                        float(line[name]) if name and line[name] else None
                        for name in (column.published, column.published_spread)
                    )
                    self._lines[key][column.metric] = value, spread
        except KeyError as error:
            raise ConfigurationError(f"{where}: no column {error}; it has {header}") from error
        except (OSError, ValueError, csv.Error) as error:
            raise ConfigurationError(f"{where}: cannot be read: {error}") from error
        ours = {cell.key for cell in study.cells() if cell.published}
        for keys, problem, allowed in (
            (ours - self._lines.keys(), "has no line for", "published = false at the row or value"),
            (self._lines.keys() - ours, "has a line more,", "leave-out of these lines"),
        ):
            if keys:
                shown = texts.few([f"({', '.join(map(' '.join, key))})" for key in sorted(keys)], 6)
                raise ConfigurationError(f"{where}: {problem} {shown}; allowed: {allowed}")


def _choice(given: Any, axis: str = "") -> Choice:
    """Return a value of an axis, or a row."""
    if axis and not isinstance(given, Mapping):
        text = given if isinstance(given, str) else str(given).lower()
        return Choice({axis: text}, {axis: given}, _part(axis, text, isinstance(given, str)))
    label = given.get("label") if isinstance(given, Mapping) else None
    labels = {axis or ROW: label} if isinstance(label, str) else label
    if not (
        isinstance(labels, Mapping)
        and labels
        and all(isinstance(text, str) and slug(text) for text in labels.values())
    ):
        kinds = "a string" if axis else "a string or a table of strings by column"
        raise ValueError(f"a table with a label, {kinds}, not {given}")
    parts = [_part(axis, text, named=True) if axis else slug(text) for text in labels.values()]
    values = {key: value for key, value in given.items() if key not in ("label", "published")}
    return Choice(dict(labels), values, "-".join(parts), bool(given.get("published", True)))


def _part(axis: str, label: str, named: bool) -> str:
    part = slug(label)  # a number is preceded by its axis's name
    return part if named and not part[:1].isdigit() else f"{slug(axis)}-{part}"


def _rows(given: Any) -> Any:
    return tuple(map(_choice, given)) if isinstance(given, list) else given


def _axes(given: Any) -> Any:
    for axis, values in given.items():
        if not isinstance(values, list):
            raise ValueError(f"a list of values for axis '{axis}', not {values!r}")
    return {axis: tuple(_choice(each, axis) for each in values) for axis, values in given.items()}


class Study(pydantic.BaseModel):
    """A set of runs that are made and evaluated together, as its file says.

    Attributes:
        axes: Choices by axis, in the file's order; the runs are the product of all axes and rows.
        rows: Sets of keys that vary together; a single one without labels where the file has none.
        spread: What follows a mean, over the seeds.
        figures: The figures to draw; empty: one of each kind.
        claims: The claims to test, a family.
        source: The study's file.
        tables: The file's content, merged with the files that it extends.
    """

    model_config = STRICT

    title: str = pydantic.Field(min_length=1)
    name: str = pydantic.Field(pattern=r"^[a-z0-9+][a-z0-9.+-]*$")
    spread: Literal["standard-deviation", "standard-error"] = "standard-deviation"
    base: dict[str, Any] = {}
    axes: Annotated[dict[str, tuple[Choice, ...]], pydantic.BeforeValidator(_axes)] = {}
    rows: Annotated[tuple[Choice, ...], pydantic.BeforeValidator(_rows)] = pydantic.Field(
        (Choice({}),), min_length=1
    )
    columns: list[Column] = pydantic.Field(
        default_factory=lambda given: default_columns(given.get("base", {})), min_length=1
    )
    published: Published | None = None
    figures: list[Figure] = []
    claims: Annotated[list[Claim], pydantic.BeforeValidator(_combinations)] = []
    source: Path
    tables: dict[str, Any]

    @property
    def other_axes(self) -> dict[str, tuple[Choice, ...]]:
        """The axes except the seeds."""
        return {name: choices for name, choices in self.axes.items() if name != SEED}

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The columns that identify a line of a table."""
        return (*self.rows[0].labels, *self.other_axes)

    def cells(self) -> tuple[Choice, ...]:
        """Return the lines of the tables: row after row, the axes varying within a row."""
        return tuple(map(Choice.of, itertools.product(self.rows, *self.other_axes.values())))

    def tested_claims(self) -> int:
        """Return the number of pairs of lines that the claims compare, of those that are tested."""
        cells = self.cells()
        return sum(len(claim.pairs(cells)) for claim in self.claims if claim.beforehand)

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """All runs in the order in which they are made: the first axis varies slowest."""
        found = []
        for *choices, row in itertools.product(*self.axes.values(), self.rows):
            chosen = dict(zip(self.axes, choices, strict=True))
            # Sorted by axis, the seed last, so that names do not depend on the file's order.
            by_name = [chosen[axis] for axis in sorted(chosen, key=lambda n: (n == SEED, n))]
            whole = Choice.of((row, *choices))
            cell = Choice.of((row, *(c for name, c in chosen.items() if name != SEED)))
            name = Choice.of((row, *by_name)).name or "run"
            found.append(Run(name, cell, whole.labels, {**self.base, **whole.values}))
        return tuple(found)

    @pydantic.model_validator(mode="after")
    def _goes_together(self) -> Self:
        if problem := next(self._problems(), None):
            raise ValueError(problem)
        return self

    def _problems(self) -> Iterator[str]:
        """Yield what is wrong; the first problem may cause the others."""
        if len(kinds := dict.fromkeys(", ".join(row.labels) for row in self.rows)) > 1:
            yield f"labels of the rows with the same columns, not {'; '.join(kinds)}"
        for column, number in Counter([*self.rows[0].labels, *self.axes]).items():
            if number > 1:
                yield f"the label column '{column}' of the rows or of an axis, not of both"
        for key in GIVEN_BY_THE_RUNNER:
            if any(key in run.values for run in self.runs):
                yield f"no {key}, which depends on the machine: --output or --run-config"
        for name, number in Counter(run.name for run in self.runs).items():
            if number > 1:
                yield f"labels that differ in letters or digits: {number} runs are '{name}'"
        sides = {column.metric: column.higher_is_better for column in self.columns}
        for claim in self.claims:
            for metric in filter(None, (claim.metric, claim.than)):
                if sides.get(metric) is None:
                    known = [name for name, side in sides.items() if side is not None]
                    yield f"claims of {unknown_name('column with a better side', metric, known)}"
            if not claim.pairs(self.cells()):
                yield f"claims of two lines of the table, not {claim.better} and {claim.worse}"


def read_study(path: Path) -> Study:
    """Return the study that a TOML file describes, see ``docs/studies.md``; no plugin is loaded.

    Raises:
        ConfigurationError: The file, or one that it extends, cannot be read or has an unknown key,
            or its study is contradictory.
    """
    tables, published_folder = read_extended(path)
    # The names that a plugin brings are unknown here.
    base = tables.get("base", {})
    known = not (isinstance(base, Mapping) and named_plugins(base))
    given = {"name": slug(path.stem), **tables, "source": path, "tables": tables}
    try:
        study = Study.model_validate(given, context={CHECKED: known})
    except pydantic.ValidationError as error:
        lines = dict.fromkeys(f"study {path}: {text}" for text in refused_values(error))
        raise ConfigurationError("\n".join(lines)) from error
    if study.published is not None:
        study.published.read(published_folder, study)
    return study


BY_KEY = ("base", "axes", "published")
"""Tables that extending files override key by key; any other value replaces the whole."""


def read_extended(path: Path) -> tuple[dict[str, Any], Path]:
    """Return a study's tables, merged with the files that it extends, and the published folder.

    A file overrides those that it extends, and of these a later one overrides an earlier one.
    ``base``, ``axes`` and ``published`` are overridden key by key, anything else as a whole. A
    ``published`` with a ``file`` replaces the whole table, and ``false`` removes it. An axis that
    ends up as an empty list is left out. Name and title are not taken from other files.
    """
    *extended, (_, own) = _lineage(path, ())
    tables: dict[str, Any] = {}
    published_folder = path.parent
    for each, content in (*extended, (path, own)):
        for key, value in content.items():
            table = isinstance(value, Mapping)
            if key in BY_KEY and not table and (key, value) != ("published", False):
                raise ConfigurationError(f"study {each}: {key} is {value!r}; allowed: a table")
            # The notes and lines of one published table do not fit another one.
            whole = key == "published" and table and "file" in value
            by_key = key in BY_KEY and table and isinstance(tables.get(key), Mapping)
            tables[key] = {**tables[key], **value} if by_key and not whole else value
            published_folder = each.parent if whole else published_folder
    for key in {"name", "title"} - own.keys():
        tables.pop(key, None)
    if tables.get("published") is False:
        del tables["published"]
    if "axes" in tables:
        tables["axes"] = {name: values for name, values in tables["axes"].items() if values != []}
    return tables, published_folder


def _lineage(path: Path, below: tuple[Path, ...]) -> list[tuple[Path, dict[str, Any]]]:
    """Return a file and all that it extends, each once, extended files first."""
    if path.resolve() in {each.resolve() for each in below}:
        raise ConfigurationError(f"study {path} extends itself")
    own = read_toml(path)
    given = own.pop("extends", [])
    names = [given] if isinstance(given, str) else given
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise ConfigurationError(f"study {path}: extends is {given!r}; allowed: a path, or paths")
    found: dict[Path, tuple[Path, dict[str, Any]]] = {}
    for name in names:
        other = path.parent / files.given_path(name, f"study {path}: extends")
        for each, tables in _lineage(other, (*below, path)):
            found.setdefault(each.resolve(), (each, tables))
    return [*found.values(), (path, own)]
