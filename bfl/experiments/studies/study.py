"""A study: a TOML file whose base, axes and rows expand to runs with stable names."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, cycle, islice, product
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import BaseModel, BeforeValidator, Field

from bfl.configuration import Configuration, expanded, resolve
from bfl.configuration.keys import SECTIONS
from bfl.configuration.messages import refused_values, unknown_key
from bfl.configuration.pairs import Value
from bfl.configuration.settings import default_values, read_sections
from bfl.configuration.sources import read_toml
from bfl.data.datasets import portable_dataset
from bfl.errors import ConfigurationError, unknown_name
from bfl.experiments.run.resume import FREE_TO_CHANGE
from bfl.experiments.run.simulation import DEFAULT_SUPERNODES, names_clients
from bfl.experiments.studies.columns import CHECKED, Column, Figure, default_columns
from bfl.files import given_path, read_regular
from bfl.plugins import named_plugins
from bfl.registry import STRICT
from bfl.texts import decoded, few

SEED, SEEDS = "seed", "seeds"
"""The axis over which tables and figures take means and spreads, and its name in a scale."""

ROW = "row"  # the label column of rows whose label is a string
MOST_RUNS = 100_000  # the most runs of a study, and values of an axis

GIVEN_BY_THE_RUNNER = ("name", "output-dir", "resume", "data-dir")
"""Keys of a run's place, which the study's folder and the machine decide."""

EXAMPLES = ("train-examples", "test-examples")

REDUCIBLE = ("rounds", "local-epochs", "mc-samples", "evaluate-mc-samples", *EXAMPLES, SEEDS)
"""Names that a scale has: configuration keys, and the number of seeds."""

Key = tuple[tuple[str, str], ...]  # the labels of a line by column, sorted by column

Number = tuple[float | None, float | None]
"""A published number and its spread; None where there is none."""


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


@dataclass(frozen=True)
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
        values = {**self.values, "clients": clients or DEFAULT_SUPERNODES}
        found = resolve(values, check_data=False)
        in_the_data = not clients and names_clients(found)
        return resolve({**values, "clients": 0}, check_data=False) if in_the_data else found


def configuration_hash(values: Mapping[str, Any]) -> str:
    """Return the first 16 digits of the SHA-256 of the keys that a result depends on."""
    kept = {
        key: portable_dataset(str(value)) if key in ("dataset", "server-data") else value
        for key, value in values.items()
        if key not in FREE_TO_CHANGE
    }
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def slug(label: str) -> str:
    """Return a label as a part of a folder name.

    Example:
        >>> slug("MC Dropout"), slug("Dirichlet (α = 0.5)")
        ('mc-dropout', 'dirichlet-0.5')
    """
    return re.sub(r"[^a-z0-9.+]+", "-", label.lower()).strip("-.")


@dataclass(frozen=True)
class Study:
    """A set of runs that are made and evaluated together.

    Attributes:
        axes: Choices by axis, in the file's order; the runs are the product of all axes and rows.
        rows: Sets of keys that vary together; a single one without labels where the file has none.
        spread: "standard-deviation" or "standard-error", over the seeds.
        figures: The figures to draw; empty: one of each kind.
        claims: The claims to test, a family.
        tables: The file's content, merged with the files that it extends.
        scale: The reduction, see ``read_scale``.
    """

    name: str
    title: str
    base: Mapping[str, Value]
    axes: Mapping[str, tuple[Choice, ...]]
    rows: tuple[Choice, ...]
    columns: tuple[Column, ...]
    spread: str
    figures: tuple[Figure, ...]
    claims: tuple[Claim, ...]
    source: Path
    tables: Mapping[str, Any]
    published: PublishedTable | None = None
    scale: Mapping[str, float] = field(default_factory=dict)

    @property
    def folder_name(self) -> str:
        """The name of the study's folder; with more seeds a study continues in its folder."""
        amounts = (f"_{name}-{n:g}" for name, n in self.scale.items() if name != SEEDS)
        return f"{self.name}{''.join(amounts)}"

    @property
    def scale_in_words(self) -> str:
        """The reduction, or the numbers of examples that the file sets."""
        if self.scale:
            amounts = (f"{name} {'' if n >= 1 else '× '}{n:g}" for name, n in self.scale.items())
            return f"scaled: {', '.join(amounts)}"
        words = ["at the scale of the study's file"]
        for name in EXAMPLES:
            given = dict.fromkeys(run.values.get(name, 0) for run in self.runs)
            numbers = [number for number in given if isinstance(number, int | float)]
            if any(numbers):
                words.append(f"{name} {' and '.join(f'{n:g}' if n else 'all' for n in numbers)}")
        return ", ".join(words)

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
        return tuple(map(Choice.of, product(self.rows, *self.other_axes.values())))

    def tested_claims(self) -> int:
        """Return the number of pairs of lines that the claims compare, of those that are tested."""
        cells = self.cells()
        return sum(len(claim.pairs(cells)) for claim in self.claims if claim.beforehand)

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """All runs in the order in which they are made: the first axis varies slowest."""
        found = []
        for *choices, row in product(*self.axes.values(), self.rows):
            chosen = dict(zip(self.axes, choices, strict=True))
            # Sorted by axis, the seed last, so that names do not depend on the file's order.
            by_name = [chosen[axis] for axis in sorted(chosen, key=lambda n: (n == SEED, n))]
            whole = Choice.of((row, *choices))
            values = {**self.base, **whole.values}
            for key, amount in self.scale.items():
                now = None if key == SEEDS else expanded(values)[key]
                if isinstance(now, int | float):  # anything else is refused later
                    values[key] = reduced(now, amount, key)
            cell = Choice.of((row, *(c for name, c in chosen.items() if name != SEED)))
            name = Choice.of((row, *by_name)).name or "run"
            found.append(Run(name, cell, whole.labels, values))
        return tuple(found)

    def scaled(self, text: str) -> Study:
        """Return the study at another scale, with fewer or more seeds if the scale says so."""
        scale = read_scale(text)
        if SEEDS not in scale:
            return replace(self, scale=scale)
        if SEED not in self.axes:
            raise ConfigurationError(f"--scale: {self.source} has no axis 'seed'")
        seeds, amount = self.axes[SEED], scale[SEEDS]
        known = [choice.values.get(SEED) for choice in seeds]
        number = int(reduced(len(seeds), amount, SEED) if amount < 1 else amount)
        alone = all(choice.values.keys() == {SEED} for choice in seeds)
        if number > len(seeds) and not (alone and all(type(seed) is int for seed in known)):
            raise ConfigurationError(
                f"--scale: seeds can be at most {len(seeds)}, as those of {self.source} are not "
                "numbers, or set other keys"
            )
        free = islice((s for s in count() if s not in known), max(0, number - len(seeds)))
        more = (Choice({SEED: str(seed)}, {SEED: seed}, f"{SEED}-{seed}") for seed in free)
        return replace(self, axes={**self.axes, SEED: (*seeds[:number], *more)}, scale=scale)


def read_scale(text: str) -> dict[str, float]:
    """Return the amounts of a scale such as ``rounds=0.05,train-examples=0.2,seeds=1``.

    Below 1 an amount is a share of the study's, from 1 an upper limit, or the number of seeds.
    """
    amounts: dict[str, float] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = (part.strip() for part in pair.partition("="))
        if name not in REDUCIBLE:
            raise ConfigurationError(f"--scale: {unknown_name('name', name, REDUCIBLE)}")
        try:
            amount = float(number)
        except ValueError:
            amount = math.nan
        if not (0 < amount < 1 or (1 <= amount <= MOST_RUNS and amount.is_integer())):
            raise ConfigurationError(
                f"--scale: {name} is {number!r}; allowed: a share between 0 and 1, or a whole "
                f"number up to {MOST_RUNS}"
            )
        amounts[name] = amount
    return dict(sorted(amounts.items()))


def reduced(number: float, amount: float, key: str) -> float:
    """Return a reduced number: a share of it, or at most the amount from 1.

    Example:
        >>> reduced(400, 0.05, "rounds"), reduced(5, 20, "rounds"), reduced(0, 0.2, EXAMPLES[0])
        (20, 5, 0.2)
    """
    if key in EXAMPLES and not number:  # all
        return amount
    if key in EXAMPLES and number < 1:
        if amount >= 1:
            raise ConfigurationError(
                f"--scale: {key} is a share in the study, {number:g}; allowed: a share of it"
            )
        return number * amount
    least = max(1, round(number * amount)) if amount < 1 else min(number, int(amount))
    return float(least) if key in EXAMPLES else least


# What stands in a file ---------------------------------------------------------------------------


class Claim(BaseModel):
    """A claimed ranking of two lines by a metric.

    Attributes:
        worse: Labels of the worse line, in the columns where it differs from the better one.
        than: A metric in which the better lines themselves are worse; empty: lines are compared.
        beforehand: Whether it was declared before there were runs; only such claims are tested.
        published: The paper's difference, in the column's unit, where there is no published table.
    """

    model_config = STRICT

    metric: str
    better: dict[str, str] = Field(min_length=1)
    worse: dict[str, str] = Field(default_factory=dict)
    than: str = ""
    beforehand: bool = True
    published: float | None = None

    @pydantic.model_validator(mode="after")
    def _compares_lines_or_metrics(self) -> Self:
        if bool(self.worse) == bool(self.than):
            raise ValueError("allowed: either worse, other lines, or than, another metric of these")
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
    if not (isinstance(tables, list) and all(isinstance(table, Mapping) for table in tables)):
        return tables

    def each(given: Any) -> list[Any]:
        if isinstance(given, Mapping):
            return [
                dict(zip(given, labels, strict=True))
                for labels in product(*map(each, given.values()))
            ]
        return given if isinstance(given, list) else [given]

    found = []
    for table in tables:
        lists = {key: each(table[key]) for key in ("metric", "better", "worse") if key in table}
        chosen = [dict(zip(lists, one, strict=True)) for one in product(*lists.values())]
        numbers = each(table.get("published"))
        if not chosen or len(numbers) not in (1, len(chosen)):
            raise ValueError(
                f"a claim with published numbers, one or {len(chosen)}, not {len(numbers)}"
            )
        found += [
            {**table, **claim, "published": number}
            for claim, number in zip(chosen, cycle(numbers), strict=False)
        ]
    return found


@dataclass(frozen=True)
class PublishedTable:
    """The numbers of a published table: by line and metric, with spread, in the column's unit."""

    text: str
    lines: Mapping[Key, Mapping[str, Number]]
    notes: tuple[str, ...] = ()

    def entry(self, key: Key, metric: str) -> Number:
        """Return a line's number for a metric with its spread."""
        return self.lines.get(key, {}).get(metric, (None, None))


class _Published(BaseModel):
    """The table ``[published]``.

    Attributes:
        file: A CSV file with a header, in the study's folder. Cells of numbers may be empty.
        leave_out: Labels by column; lines that match all labels of one of these are left out.
        spread_as_fraction: Labels in the same form; matching lines print the spread in the unit of
            the runs' numbers, such as a fraction, and the value in the column's, such as percent.
    """

    model_config = STRICT

    file: str = Field(min_length=1)
    leave_out: list[dict[str, str]] = Field(default_factory=list)
    spread_as_fraction: list[dict[str, str]] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)

    def read(self, folder: Path, study: Study) -> PublishedTable:
        """Return the table, whose lines must be those of the study."""
        path = folder / self.file
        where = f"published table {path}"
        try:
            text = decoded(read_regular(path))
            header, *rows = csv.reader(io.StringIO(text), strict=True)
        except (OSError, ValueError, csv.Error) as error:
            raise ConfigurationError(f"{where}: cannot be read: {error}") from error
        columns = [column for column in study.columns if column.published]
        named = [n for c in columns for n in (c.published, c.published_spread) if n]
        matched = [n for labels in (*self.leave_out, *self.spread_as_fraction) for n in labels]
        for name in (*study.label_columns, *named, *matched):
            if name not in header:
                raise ConfigurationError(f"{where}: no column {name}; it has {', '.join(header)}")
        lines: dict[Key, dict[str, Number]] = {}
        for number, row in enumerate(rows, start=2):
            try:
                line = dict(zip(header, map(str.strip, row), strict=True))
                if any(labels.items() <= line.items() for labels in self.leave_out):
                    continue
                key = tuple(sorted((name, line[name]) for name in study.label_columns))
                if key in lines:
                    raise ValueError(f"stands there twice: {key}")
                fraction = any(labels.items() <= line.items() for labels in self.spread_as_fraction)
                lines[key] = {}
                for column in columns:
                    value, spread = (
                        float(line[name]) if name and line[name] else None
                        for name in (column.published, column.published_spread)
                    )
                    unit = column.scale if fraction else column.published_spread_scale
                    lines[key][column.metric] = value, None if spread is None else spread * unit
            except ValueError as error:
                raise ConfigurationError(f"{where}: line {number}: {error}") from error
        ours = {cell.key for cell in study.cells() if cell.published}
        for keys, problem, allowed in (
            (ours - lines.keys(), "it has no line for", "published = false at the row or value"),
            (lines.keys() - ours, "the study has nothing for its line", "leave-out of these lines"),
        ):
            if keys:
                shown = few([f"({', '.join(map(' '.join, key))})" for key in sorted(keys)], 6)
                raise ConfigurationError(f"{where}: {problem} {shown}; allowed: {allowed}")
        return PublishedTable(text, lines, tuple(self.notes))


class _File(BaseModel):
    """A study's file."""

    model_config = STRICT

    title: str = Field(min_length=1)
    name: str = ""
    spread: Literal["standard-deviation", "standard-error"] = "standard-deviation"
    base: dict[str, Any] = Field(default_factory=dict)
    axes: dict[str, list[Any]] = Field(default_factory=dict)
    rows: list[dict[str, Any]] | None = None
    columns: list[Column] = Field(
        default_factory=lambda given: default_columns(given.get("base", {})), min_length=1
    )
    published: _Published | None = None
    figures: list[Figure] = Field(default_factory=list)
    claims: Annotated[list[Claim], BeforeValidator(_combinations)] = Field(default_factory=list)
    scale: str = ""


def read_study(path: Path) -> Study:
    """Return the study that a TOML file describes, see ``docs/studies.md``; no plugin is loaded.

    Raises:
        ConfigurationError: The file, or one that it extends, cannot be read or has an unknown key,
            or its study is contradictory or too large.
    """
    tables, published_folder = read_extended(path)
    # The names that a plugin brings are unknown here.
    base = tables.get("base", {})
    known = not (isinstance(base, Mapping) and named_plugins(base))
    try:
        file = _File.model_validate(tables, context={CHECKED: known})
        sizes = [1 if file.rows is None else len(file.rows), *map(len, file.axes.values())]
        if max(*sizes, math.prod(sizes)) > MOST_RUNS:
            largest = max(file.axes, key=lambda axis: len(file.axes[axis]))
            raise ValueError(
                f"its axes and rows make {math.prod(sizes)} runs, of which axis '{largest}' has "
                f"{len(file.axes[largest])} values; allowed: at most {MOST_RUNS}"
            )
        study = Study(
            name=file.name or slug(path.stem),
            title=file.title,
            base=file.base,
            axes={axis: _axis(axis, values, known) for axis, values in file.axes.items()},
            rows=(Choice({}),) if file.rows is None else tuple(map(_choice, file.rows)),
            columns=tuple(file.columns),
            spread=file.spread,
            figures=tuple(file.figures),
            claims=tuple(file.claims),
            source=path,
            tables=tables,
        )
        if problem := next(_problems(study), None):
            raise ValueError(problem)
    except pydantic.ValidationError as error:
        lines = [f"study {path}: {text}" for text in dict.fromkeys(_refused(error))]
        raise ConfigurationError("\n".join(lines)) from error
    except ValueError as error:
        raise ConfigurationError(f"study {path}: {error}") from error
    if file.published is not None:
        study = replace(study, published=file.published.read(published_folder, study))
    return study.scaled(file.scale)


def _refused(error: pydantic.ValidationError) -> Iterable[str]:
    models: dict[str, type[BaseModel]] = {
        "columns": Column,
        "published": _Published,
        "claims": Claim,
        "figures": Figure,
    }
    for row, refused_value in zip(error.errors(), refused_values(error), strict=True):
        *where, key = row["loc"]
        if row["type"] != "extra_forbidden":
            yield refused_value
        elif not where and (key in SECTIONS or key in default_values()):
            yield f"'{key}' belongs to a run; give it in [base]"
        else:
            model = models[str(where[0])] if where else _File
            names = [info.alias or name for name, info in model.model_fields.items()]
            within = f" (in {'.'.join(map(str, where))})" if where else ""
            yield unknown_key(str(key), names) + within


def _axis(name: str, values: Sequence[Any], known: bool) -> tuple[Choice, ...]:
    if not values:
        raise ValueError(f"axis '{name}' is empty; give it values, or leave it out")
    of_tables = all(isinstance(each, Mapping) for each in values)
    if known and name not in default_values() and not of_tables:
        raise ValueError(
            f"axis '{name}': {unknown_key(name, default_values())} (an axis of another name has "
            "tables with a label for values)"
        )
    return tuple(_choice(each, name) for each in values)


def _choice(given: Any, axis: str = "") -> Choice:
    """Return a value of an axis, or a row."""
    if axis and not isinstance(given, Mapping):
        text = given if isinstance(given, str) else str(given).lower()
        return Choice({axis: text}, {axis: given}, _part(axis, text, isinstance(given, str)))
    where, label = f"axis '{axis}'" if axis else "rows", given.get("label")
    labels = {axis or ROW: label} if axis or isinstance(label, str) else label
    if not (
        isinstance(labels, Mapping)
        and labels
        and all(isinstance(text, str) and slug(text) for text in labels.values())
    ):
        kinds = "a string" if axis else "a string or a table of strings by column"
        raise ValueError(f"{where}: needs a label, {kinds}; given: {given}")
    if not isinstance(published := given.get("published", True), bool):
        raise ValueError(f"{where}: published is {published!r}; allowed: true or false")
    parts = [_part(axis, text, named=True) if axis else slug(text) for text in labels.values()]
    values = {key: value for key, value in given.items() if key not in ("label", "published")}
    return Choice(dict(labels), values, "-".join(parts), published)


def _part(axis: str, label: str, named: bool) -> str:
    part = slug(label)  # a number is preceded by its axis's name
    return part if named and not part[:1].isdigit() else f"{slug(axis)}-{part}"


def _problems(study: Study) -> Iterator[str]:
    """Yield what is wrong with a study; the first problem may cause the others."""
    if study.name != slug(study.name):
        yield f"name is {study.name!r}; allowed: small letters, digits, '.' and '-'"
    if not study.rows:
        yield "rows is empty; give it rows, or leave it out"
    if len(kinds := dict.fromkeys(", ".join(row.labels) for row in study.rows)) > 1:
        yield f"rows: all labels have the same columns; given: {'; '.join(kinds)}"
    for column, number in Counter([*study.rows[0].labels, *study.axes]).items():
        if number > 1:
            yield f"two places give the label column '{column}': an axis and the rows"
    places = {f"axis '{name}'": choices for name, choices in study.axes.items()}
    setting: dict[str, str] = {}
    for place, choices in {**places, "the rows": study.rows}.items():
        for key in sorted({key for choice in choices for key in choice.values}):
            if key in GIVEN_BY_THE_RUNNER:
                yield f"{place}: {key} cannot be set by a study"
            elif key in setting:
                yield f"{setting[key]} and {place} both set '{key}'; one of them may"
            setting[key] = place
    for key in set(GIVEN_BY_THE_RUNNER) & set(study.base):
        yield f"base sets {key}, which depends on the machine; allowed: --output or --run-config"
    for name, number in Counter(run.name for run in study.runs).items():
        if number > 1:
            yield (
                f"{number} runs have the name '{name}'; give their rows or values labels that "
                "differ in letters or digits"
            )
    figures = Counter(figure.name for figure in study.figures)
    yield from (f"{n} figures have the name '{name}'" for name, n in figures.items() if n > 1)
    for figure in study.figures:
        for column, labels in (pair for choice in figure.rows for pair in choice.items()):
            for label in set(labels) - {row.labels.get(column) for row in study.rows}:
                yield f"figure '{figure.name}': no row has the {column} '{label}'"
    shown = {column.metric: (column.higher_is_better, column.scale) for column in study.columns}
    for claim in study.claims:
        if claim.metric not in shown:
            yield f"claims: {unknown_name('column', claim.metric, list(shown))}"
        elif shown[claim.metric][0] is None:
            ranked = ", ".join(m for m, (side, _) in shown.items() if side is not None)
            yield f"claims: metric is {claim.metric!r}, without a better side; allowed: {ranked}"
        elif claim.than and (
            claim.than == claim.metric or shown.get(claim.than) != shown[claim.metric]
        ):
            yield (
                f"claims: than is {claim.than!r}; allowed: another column with the better side "
                f"and the scale that {claim.metric!r} has"
            )
        if not claim.pairs(study.cells()):
            yield f"claims: no two lines of the table are {claim.better} and {claim.worse}"


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
    if "axes" in tables and extended:
        tables["axes"] = {name: values for name, values in tables["axes"].items() if values != []}
    return tables, published_folder


def _lineage(path: Path, below: tuple[Path, ...]) -> list[tuple[Path, dict[str, Any]]]:
    """Return a file and all that it extends, each once, extended files first."""
    if path.resolve() in {each.resolve() for each in below}:
        chain = " extends ".join(map(str, (*below, path)))
        raise ConfigurationError(f"study {path} extends itself: {chain}")
    own = read_toml(path)
    if isinstance(base := own.get("base"), Mapping):
        own["base"] = read_sections(base, f"study {path}: base")
    given = own.pop("extends", [])
    names = [given] if isinstance(given, str) else given
    if not (isinstance(names, list) and all(isinstance(name, str) and name for name in names)):
        raise ConfigurationError(
            f"study {path}: extends is {given!r}; allowed: the path of a study's file from this "
            "file's folder, or a list of paths"
        )
    found: dict[Path, tuple[Path, dict[str, Any]]] = {}
    for name in names:
        other = path.parent / given_path(name, f"study {path}: extends")
        if not other.is_file():
            raise ConfigurationError(f"study {path} extends '{name}', and there is no file {other}")
        for each, tables in _lineage(other, (*below, path)):
            found.setdefault(each.resolve(), (each, tables))
    return [*found.values(), (path, own)]
