"""Reading and checking of studies' TOML files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, product
from pathlib import Path
from typing import Any, Literal, Self

import pydantic
from pydantic import Field

from bfl.configuration.keys import SECTIONS
from bfl.configuration.messages import refused_values, unknown_key
from bfl.configuration.settings import default_values, read_sections
from bfl.configuration.sources import read_toml
from bfl.errors import ConfigurationError, unknown_name
from bfl.experiments.studies.columns import Column, default_columns
from bfl.experiments.studies.published import read_published
from bfl.experiments.studies.study import (
    Choice,
    FigureSpec,
    Labels,
    Order,
    Study,
    slug,
    study_figures,
)
from bfl.files import given_path
from bfl.plugins import load_plugins, named_plugins, refuse_unnamed
from bfl.registry import STRICT

GIVEN_BY_THE_RUNNER = ("name", "output-dir", "resume", "data-dir")
"""Keys of a run's place, which the study's folder and the machine decide."""

ROW = "row"
"""The label column of rows whose label is a string."""


class _Order(pydantic.BaseModel):
    """A table ``[[orders]]``; a list of names stands for one order of each name."""

    model_config = STRICT

    metric: Labels
    better: dict[str, Labels] = Field(min_length=1)
    worse: dict[str, Labels] = Field(default_factory=dict)
    than: str = ""
    beforehand: bool = True
    published: float | list[float] | None = None

    @pydantic.model_validator(mode="after")
    def _lines_or_a_metric(self) -> Self:
        if bool(self.worse) == bool(self.than):
            raise ValueError("allowed: either worse, other lines, or than, another metric of these")
        if (given := len(self._numbers)) not in (1, count := len(self._expanded)):
            raise ValueError(f"published has {given} numbers; allowed: one, or {count}")
        return self

    @property
    def _numbers(self) -> list[float | None]:
        return [*self.published] if isinstance(self.published, list) else [self.published]

    @property
    def _expanded(self) -> list[tuple[str, dict[str, str], dict[str, str]]]:
        return list(product(self.metric, _lines(self.better), _lines(self.worse)))

    def orders(self) -> list[Order]:
        """Return an order for each combination of a metric, a better and a worse line."""
        both = zip(self._expanded, cycle(self._numbers), strict=False)
        return [Order(*order, self.than, self.beforehand, number) for order, number in both]


def _lines(labels: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    return [dict(zip(labels, chosen, strict=True)) for chosen in product(*labels.values())]


class _Published(pydantic.BaseModel):
    """The table ``[published]``."""

    model_config = STRICT

    file: str = Field(min_length=1)
    leave_out: list[dict[str, str]] = Field(default_factory=list)
    spread_as_fraction: list[dict[str, str]] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)


class _File(pydantic.BaseModel):
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
    figures: list[FigureSpec] = Field(default_factory=list)
    reuse: list[str] = Field(default_factory=list)
    orders: list[_Order] = Field(default_factory=list)


_TABLES: dict[str, type[pydantic.BaseModel]] = {
    "columns": Column,
    "published": _Published,
    "orders": _Order,
    "figures": FigureSpec,
}


def read_study(path: Path, *, trusted: bool = True) -> Study:
    """Return the study that a TOML file describes, see ``docs/studies.md``.

    Args:
        path: The file. A published table is looked up in its folder.
        trusted: Whether the plugins that it names are loaded, see ``Study``.

    Raises:
        ConfigurationError: The file, or one that it extends, cannot be read or has an unknown key,
            or its study is contradictory. The message has one line for each problem.
    """
    return study_of(read_extended(path), None, trusted=trusted)


def study_of(read: ExtendedFile, published: str | None, *, trusted: bool) -> Study:
    """Return the study of a file's tables.

    Args:
        published: The text of the published table; None: it is read from its file.
    """
    try:
        file = _File(**read.tables)
    except pydantic.ValidationError as error:
        read.refuse(_shape_problems(error), error)
        raise
    # An axis may be a setting of a plugin's part.
    if trusted:
        load_plugins(named_plugins(file.base))
    else:
        refuse_unnamed(named_plugins(file.base), str(read.path))
    problems: list[str] = []
    rows = tuple(_choice(row, f"row {n}", problems) for n, row in enumerate(file.rows or (), 1))
    name = file.name or slug(read.path.stem)
    study = Study(
        name=name,
        title=file.title,
        base=file.base,
        axes={axis: _axis(axis, values, problems) for axis, values in file.axes.items()},
        rows=(Choice({}, {}, ""),) if file.rows is None else rows,
        columns=tuple(file.columns),
        spread=file.spread,
        figures=tuple(file.figures),
        reuse=tuple(file.reuse),
        orders=tuple(order for table in file.orders for order in table.orders()),
        source=read.path,
        tables=read.tables,
        trusted=trusted,
    )
    if name != slug(name):
        problems.append(f"name is {name!r}; allowed: small letters, digits, '.' and '-'")
    read.refuse([*problems, *_collisions(study)])
    read.refuse([*_same_names(study), *_figure_problems(study), *_order_problems(study)])
    if file.published is None:
        return study
    given = file.published
    table = read_published(
        read.published_folder / given.file,
        study.columns,
        study.label_columns,
        given.leave_out,
        given.spread_as_fraction,
        text=published,
    )
    read.refuse(table.mismatches(cell.key for cell in study.cells() if cell.published))
    return replace(study, published=replace(table, notes=tuple(given.notes)))


def _shape_problems(error: pydantic.ValidationError) -> Iterable[str]:
    """Yield the problems of the file's own keys, unknown ones with the nearest spelling."""
    for row, refused in zip(error.errors(), refused_values(error), strict=True):
        *where, key = row["loc"]
        within = f" (in {'.'.join(map(str, where))})" if where else ""
        if row["type"] == "missing":
            yield f"the key '{key}' is missing{within}"
        elif row["type"] == "extra_forbidden":
            model = _TABLES.get(str(where[0]), _File) if where else _File
            allowed = [field.alias or name for name, field in model.model_fields.items()]
            if not where and (key in SECTIONS or key in default_values()):
                yield f"'{key}' belongs to a run; give it in [base]"
                continue
            yield unknown_key(str(key), allowed) + within
        else:
            yield refused


def _axis(name: str, values: Sequence[Any], problems: list[str]) -> tuple[Choice, ...]:
    if not values:
        problems.append(f"axis '{name}' is empty; give it values, or leave it out")
    if name not in default_values() and not all(isinstance(each, Mapping) for each in values):
        problems.append(
            f"axis '{name}': {unknown_key(name, default_values())} (an axis of another name has "
            "tables with a label for values)"
        )
    return tuple(_choice(each, f"axis '{name}'", problems, name) for each in values)


def _choice(given: Any, where: str, problems: list[str], axis: str = "") -> Choice:
    """Return the choice that an axis's value or a row describes: a table, or a plain value."""
    if axis and not isinstance(given, Mapping):
        text = given if isinstance(given, str) else str(given).lower()
        return Choice({axis: text}, {axis: given}, _part(axis, text, isinstance(given, str)))
    label = given.get("label")
    labels = {axis or ROW: label} if axis or isinstance(label, str) else label
    sound = isinstance(labels, Mapping) and all(
        isinstance(text, str) and slug(text) for text in labels.values()
    )
    if not sound or not labels:
        kinds = "a string" if axis else "a string or a table of strings by column"
        problems.append(f"{where}: needs a label, {kinds}; given: {given}")
        labels = {axis or ROW: "unlabelled"}
    published = given.get("published", True)
    if not isinstance(published, bool):
        problems.append(f"{where}: published is {published!r}; allowed: true or false")
    parts = [_part(axis, text, named=True) if axis else slug(text) for text in labels.values()]
    values = {key: value for key, value in given.items() if key not in ("label", "published")}
    return Choice(dict(labels), values, "-".join(parts), bool(published))


def _part(axis: str, label: str, named: bool) -> str:
    """Return a label as a part of a run's name; a number is preceded by its axis's name."""
    part = slug(label)
    return part if named and not part[:1].isdigit() else f"{slug(axis)}-{part}"


def _collisions(study: Study) -> Iterable[str]:
    """Yield the keys that two places set, and the label columns that two places use."""
    if not study.rows:
        yield "rows is empty; give it rows, or leave it out"
        return
    if len(kinds := dict.fromkeys(", ".join(row.labels) for row in study.rows)) > 1:
        yield f"rows: all labels have the same columns; given: {'; '.join(kinds)}"
    for column, count in Counter([*study.rows[0].labels, *study.axes]).items():
        if count > 1:
            yield f"two places give the label column '{column}': an axis and the rows"
    places = {f"axis '{name}'": choices for name, choices in study.axes.items()}
    places["the rows"] = study.rows
    setting: dict[str, str] = {}
    for place, choices in places.items():
        for key in sorted({key for choice in choices for key in choice.values}):
            if key in GIVEN_BY_THE_RUNNER:
                yield f"{place}: {key} cannot be set by a study"
            elif key in setting:
                yield f"{setting[key]} and {place} both set '{key}'; one of them may"
            setting[key] = place
    for key in set(GIVEN_BY_THE_RUNNER) & set(study.base):
        yield f"base sets {key}, which depends on the machine; give --output, or data-dir by "
        "--run-config"


def _same_names(study: Study) -> Iterable[str]:
    for name, count in Counter(run.name for run in study.runs()).items():
        if count > 1:
            yield (
                f"{count} runs have the name '{name}'; give their rows or values labels that "
                "differ in letters or digits"
            )
    figures = Counter(figure.name for figure in study.figures)
    yield from (f"{n} figures have the name '{name}'" for name, n in figures.items() if n > 1)


def _figure_problems(study: Study) -> Iterable[str]:
    for figure in study.figures:
        where = f"figure '{figure.name}'"
        try:
            keys = study_figures.get(figure.kind).setting_keys()
            unknown = figure.settings.keys() - set(keys)
            yield from (f"{where}: {unknown_key(key, keys)}" for key in unknown)
            known = {key: value for key, value in figure.settings.items() if key not in unknown}
            study_figures.create(figure.kind, known)
        except pydantic.ValidationError as error:
            yield from (f"{where}: {text}" for text in refused_values(error))
        except ConfigurationError as error:
            yield f"{where}: {error}"
        for column, labels in (pair for choice in figure.rows for pair in choice.items()):
            for label in set(labels) - {row.labels.get(column) for row in study.rows}:
                yield f"{where}: no row has the {column} '{label}'"


def _order_problems(study: Study) -> Iterable[str]:
    """Yield the problems of the orders with the study's columns and lines."""
    shown = {column.metric: (column.higher_is_better, column.scale) for column in study.columns}
    ranked = ", ".join(m for m, (side, _) in shown.items() if side is not None)
    for order in study.orders:
        if order.metric not in shown:
            yield f"orders: {unknown_name('column', order.metric, list(shown))}"
        elif shown[order.metric][0] is None:
            yield f"orders: metric is {order.metric!r}, without a better side; allowed: {ranked}"
        elif order.than and (
            order.than == order.metric or shown.get(order.than) != shown[order.metric]
        ):
            yield (
                f"orders: than is {order.than!r}; allowed: another column with the better side "
                f"and the scale that {order.metric!r} has"
            )
        if not order.pairs(study.cells()):
            yield f"orders: no two lines of the table are {order.better} and {order.worse}"


# Files that extend others ------------------------------------------------------------------------

BY_KEY = ("base", "axes", "published")
"""Tables that extending files override key by key; any other value replaces the whole."""


@dataclass(frozen=True)
class ExtendedFile:
    """A study's file, merged with the files that it extends.

    Attributes:
        tables: The merged content.
        published_folder: The folder that ``published.file`` is relative to.
        extended: The files that it extends, directly or indirectly.
    """

    path: Path
    tables: Mapping[str, Any]
    published_folder: Path
    extended: tuple[Path, ...] = ()

    def refuse(self, problems: Iterable[str], cause: Exception | None = None) -> None:
        """Raise a ConfigurationError with a line for each problem, if there are any."""
        others = f" (which extends {', '.join(map(str, self.extended))})" if self.extended else ""
        lines = [f"study {self.path}{others}: {text}" for text in dict.fromkeys(problems)]
        if lines:
            raise ConfigurationError("\n".join(lines)) from cause


def read_extended(path: Path) -> ExtendedFile:
    """Return a study's file, merged with the files that it extends.

    A file overrides those that it extends, and of these a later one overrides an earlier one.
    ``base``, ``axes`` and ``published`` are overridden key by key, anything else as a whole. A
    ``published`` with a ``file`` replaces the whole table, and ``false`` removes it. An axis that
    ends up as an empty list is left out. Name and title are not taken from other files.

    Raises:
        ConfigurationError: A file cannot be read or is not TOML, ``extends`` is not a path, or a
            file extends itself.
    """
    *others, (_, own) = _lineage(path, ())
    if not others:
        return ExtendedFile(path, own, path.parent)
    tables: dict[str, Any] = {}
    published_folder = path.parent
    for each, said in (*others, (path, own)):
        for key, value in said.items():
            table = isinstance(value, Mapping)
            if key in BY_KEY and not table and (key, value) != ("published", False):
                raise ConfigurationError(f"study {each}: {key} is {value!r}; allowed: a table")
            # The notes and lines of one published table do not fit another one.
            whole = key == "published" and table and "file" in value
            by_key = key in BY_KEY and table and isinstance(tables.get(key), Mapping)
            tables[key] = {**tables[key], **value} if by_key and not whole else value
            published_folder = each.parent if whole else published_folder
    tables = {k: v for k, v in tables.items() if k not in ("name", "title") or k in own}
    if tables.get("published") is False:
        del tables["published"]
    if "axes" in tables:
        tables["axes"] = {name: values for name, values in tables["axes"].items() if values != []}
    return ExtendedFile(path, tables, published_folder, tuple(o for o, _ in reversed(others)))


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
        named = path.parent / given_path(name, f"study {path}: extends")
        # For a symbolic link, paths are relative to the link's target as well.
        other = named if named.exists() else path.resolve().parent / name
        if not other.is_file():
            raise ConfigurationError(f"study {path} extends '{name}', and there is no file {named}")
        for each, tables in _lineage(other, (*below, path)):
            found.setdefault(each.resolve(), (each, tables))
    return [*found.values(), (path, own)]
