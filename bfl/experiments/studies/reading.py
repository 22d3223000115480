"""Studies read from TOML, and refused with one message where they cannot be meant as they stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pydantic
from pydantic import Field

from bfl.configuration.messages import refused_values, unknown_key
from bfl.configuration.pairs import Value
from bfl.configuration.settings import default_values
from bfl.errors import ConfigurationError, DataError, unknown_name
from bfl.experiments.studies.columns import Column, default_columns
from bfl.experiments.studies.expected_orders import OrderTable, order_problems
from bfl.experiments.studies.extending import ExtendedFile, read_extended
from bfl.experiments.studies.figures import study_figures
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.published import PublishedTable, mismatches, read_published
from bfl.experiments.studies.scale import Scale, ScaledStudy
from bfl.experiments.studies.study import Axis, Choice, FigureSpec, Study, slug
from bfl.plugins import ANY_PLUGIN, PluginPolicy, activate, named_plugins
from bfl.registry import STRICT

GIVEN_BY_THE_RUNNER = ("name", "output-dir", "resume", "data-dir")
"""Keys that say where a run is made: the study's folder and the machine decide them."""

ROW = "row"
"""The column of rows whose label is one word."""


class _Published(pydantic.BaseModel):
    """The table ``[published]`` of a study's file."""

    model_config = STRICT

    file: str = Field(min_length=1)
    leave_out: list[dict[str, str]] = Field(default_factory=list)
    spread_as_fraction: list[dict[str, str]] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)


class _File(pydantic.BaseModel):
    """A study's file as it stands."""

    model_config = STRICT

    title: str = Field(min_length=1)
    name: str = ""
    spread: Literal["standard-deviation", "standard-error"] = "standard-deviation"
    base: dict[str, Any] = Field(default_factory=dict)
    axes: dict[str, list[Any]] = Field(default_factory=dict)
    rows: list[dict[str, Any]] | None = None
    columns: list[Column] = Field(default_factory=default_columns, min_length=1)
    published: _Published | None = None
    figures: list[dict[str, Any]] = Field(default_factory=list)
    reuse: list[str] = Field(default_factory=list)
    compare: list[str] = Field(default_factory=list)
    orders: list[OrderTable] = Field(default_factory=list)
    least_steps: int = Field(0, ge=0)


_TABLES: dict[str, type[pydantic.BaseModel]] = {
    "columns": Column,
    "published": _Published,
    "orders": OrderTable,
}
"""The tables within a study's file whose keys are fixed."""


def read_study(path: Path, *, policy: PluginPolicy = ANY_PLUGIN) -> Study:
    """Return the study that a TOML file describes; ``docs/studies.md`` says what may stand in it.

    Args:
        path: The file. A published table is looked up beside it.
        policy: Which plugins are taken.

    Raises:
        ConfigurationError: The file, or one that it extends, cannot be read or has an unknown key,
            an axis is empty, two runs have one name, two places set one key, or the published
            table does not match. The message has one line for each problem.
    """
    return _study(read_extended(path), None, policy)


def _study(read: ExtendedFile, published: str | None, policy: PluginPolicy) -> Study:
    """Return the study of a file's tables; its published table is read, or its text is given."""
    path = read.path
    try:
        file = _File(**read.tables)
    except pydantic.ValidationError as error:
        raise _refused(read, _shape_problems(error)) from error
    # An axis may be a key of a user-defined part.
    activate(named_plugins(file.base), policy)
    problems: list[str] = []
    axes = tuple(_axis(name, values, problems) for name, values in file.axes.items())
    rows = _rows(file.rows, problems)
    figures = tuple(_figure(i, table, problems) for i, table in enumerate(file.figures, start=1))
    name = file.name or slug(path.stem)
    if name != slug(name).strip():
        problems.append(f"name is {name!r}; allowed: small letters, digits, '.' and '-'")
    problems += _base_problems(file.base) + _collisions(axes, rows)
    _raise_if_any(read, problems)
    study = Study(
        name=name,
        title=file.title,
        base=file.base,
        axes=axes,
        rows=rows,
        columns=tuple(file.columns),
        spread=file.spread,
        published=None,
        figures=figures,
        reuse=tuple(file.reuse),
        compare=tuple(file.compare),
        orders=tuple(order for table in file.orders for order in table.orders()),
        least_steps=file.least_steps,
        source=path,
        tables=read.tables,
    )
    _raise_if_any(read, _same_names(study) + _figure_problems(study) + _compare_problems(study))
    _raise_if_any(read, order_problems(study))
    if file.published is None:
        return study
    study = replace(study, published=_published(read, file.published, study, published))
    _raise_if_any(read, _unmatched(study, study.published))
    return study


def study_in(folder: StudyFolder) -> ScaledStudy:
    """Return the study that lies in a folder, at its scale.

    Raises:
        ConfigurationError: The folder holds none.
        DataError: Its file is corrupt.
    """
    described = folder.described()
    path = folder.study_file
    policy = PluginPolicy(named_by=str(path))
    try:
        read = ExtendedFile(path, dict(described["file"]), path.parent)
        study = _study(read, described["published"], policy)
    except (KeyError, TypeError) as error:
        raise DataError(f"{path} is corrupt: {error!r}") from error
    for text in sorted({named_plugins(run.values) for run in study.runs()}):
        activate(text, policy)
    activate(named_plugins(study.base), policy)
    return Scale(described["scale"]).apply(study)


def _refused(file: ExtendedFile, problems: Iterable[str]) -> ConfigurationError:
    return ConfigurationError("\n".join(f"study {file}: {p}" for p in dict.fromkeys(problems)))


def _raise_if_any(file: ExtendedFile, problems: Sequence[str]) -> None:
    if problems:
        raise _refused(file, problems)


def _shape_problems(error: pydantic.ValidationError) -> list[str]:
    """Return what is wrong with the file's own keys, unknown ones with the nearest spelling."""
    problems = []
    for row, refused in zip(error.errors(), refused_values(error), strict=True):
        *where, key = row["loc"]
        if row["type"] == "missing":
            problems.append(f"the key '{key}' is missing")
        elif row["type"] == "extra_forbidden":
            model = _TABLES.get(str(where[0]), _File) if where else _File
            allowed = [field.alias or name for name, field in model.model_fields.items()]
            problems.append(unknown_key(str(key), allowed) + _within(where))
        else:
            problems.append(refused)
    return problems


def _within(where: Sequence[Any]) -> str:
    return f" (in {'.'.join(map(str, where))})" if where else ""


def _axis(name: str, values: Sequence[Any], problems: list[str]) -> Axis:
    if not values:
        problems.append(f"axis '{name}' is empty; give it values, or leave it out")
    plain = [value for value in values if not isinstance(value, Mapping)]
    if plain and name not in default_values():
        problems.append(
            f"axis '{name}': {unknown_key(name, default_values())} (an axis of another name has "
            "tables with a label for values)"
        )
    return Axis(name, tuple(_axis_choice(name, value, problems) for value in values))


def _axis_choice(axis: str, value: Any, problems: list[str]) -> Choice:
    """Return the choice that an axis's value is: a plain value of the key, or a labelled table."""
    if not isinstance(value, Mapping):
        label = value if isinstance(value, str) else str(value).lower()
        return Choice({axis: label}, {axis: value}, _part(axis, label, isinstance(value, str)))
    given = value.get("label")
    label = given if isinstance(given, str) and slug(given) else "unlabelled"
    if label != given:
        problems.append(f"axis '{axis}': a table of keys needs a label, a string; given: {value}")
    values, published = _keys(value, f"axis '{axis}', {label}", problems)
    return Choice({axis: label}, values, _part(axis, label, named=True), published)


def _part(axis: str, label: str, named: bool) -> str:
    """Return the part of a run's name that a label makes; a bare number gets its axis's name."""
    part = slug(label)
    return part if named and not part[:1].isdigit() else f"{slug(axis)}-{part}"


def _rows(tables: Sequence[Mapping[str, Any]] | None, problems: list[str]) -> tuple[Choice, ...]:
    if tables is None:
        return (Choice({}, {}, ""),)
    if not tables:
        problems.append("rows is empty; give it rows, or leave it out")
    rows = tuple(_row(number, table, problems) for number, table in enumerate(tables, start=1))
    if len({tuple(row.labels) for row in rows}) > 1:
        columns = {", ".join(row.labels) for row in rows}
        problems.append(f"rows: all labels have the same columns; given: {'; '.join(columns)}")
    return rows


def _row(number: int, table: Mapping[str, Any], problems: list[str]) -> Choice:
    label = table.get("label")
    labels = {ROW: label} if isinstance(label, str) else label
    if (
        not isinstance(labels, Mapping)
        or not labels
        or not all(isinstance(text, str) and slug(text) for text in labels.values())
    ):
        problems.append(
            f"row {number}: needs a label, a string or a table of strings by column; given: {label}"
        )
        labels = {ROW: "unlabelled"}
    values, published = _keys(table, f"row {number}", problems)
    return Choice(dict(labels), values, "-".join(map(slug, labels.values())), published)


def _keys(
    table: Mapping[str, Any], where: str, problems: list[str]
) -> tuple[dict[str, Value], bool]:
    """Return the configuration keys of a labelled table, and whether it is published."""
    published = table.get("published", True)
    if not isinstance(published, bool):
        problems.append(f"{where}: published is {published!r}; allowed: true or false")
    return {k: v for k, v in table.items() if k not in ("label", "published")}, bool(published)


def _figure(number: int, table: Mapping[str, Any], problems: list[str]) -> FigureSpec:
    """Return a figure's description; its kind and settings are checked when it is made."""
    where = f"figures.{number}"
    own = {key: table.get(key, "") for key in ("name", "kind", "title")}
    for key, text in own.items():
        if not isinstance(text, str) or (key != "title" and not slug(text)):
            problems.append(f"{where}: {key} is {text!r}; allowed: a string")
            own[key] = "figure"
    rows = _shown_rows(table.get("rows", []))
    if rows is None:
        problems.append(
            f"{where}: rows is {table['rows']!r}; allowed: a table, or a list of tables, with a "
            "label or a list of labels by column"
        )
    settings = {k: v for k, v in table.items() if k not in (*own, "rows")}
    try:
        kind = study_figures.get(own["kind"])
        problems += [
            f"{where}: {unknown_key(key, kind.setting_keys())}"
            for key in settings.keys() - set(kind.setting_keys())
        ]
        study_figures.create(own["kind"], settings)
    except pydantic.ValidationError as error:
        problems += [f"{where}: {text}" for text in refused_values(error)]
    except ConfigurationError as error:
        problems.append(f"{where}: {error}")
    return FigureSpec(
        name=slug(own["name"]),
        kind=own["kind"],
        title=own["title"],
        rows=rows or (),
        settings=settings,
    )


def _shown_rows(given: Any) -> tuple[dict[str, tuple[str, ...]], ...] | None:
    """Return which rows a figure shows; None where that is not said as it has to be."""
    tables = [given] if isinstance(given, Mapping) else given
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        return None
    if not all(isinstance(labels, str | list) for table in tables for labels in table.values()):
        return None
    return tuple(
        {column: (v,) if isinstance(v, str) else tuple(v) for column, v in table.items()}
        for table in tables
    )


def _base_problems(base: Mapping[str, Any]) -> list[str]:
    return [
        f"base sets {key}, which depends on the machine; give --output, or data-dir by --run-config"
        for key in GIVEN_BY_THE_RUNNER
        if key in base
    ]


def _collisions(axes: Sequence[Axis], rows: Sequence[Choice]) -> list[str]:
    """Return which keys are set, and which label columns are used, in two places at once."""
    keys = {f"axis '{axis.name}'": _all_keys(axis.choices) for axis in axes}
    columns = Counter([*(axis.name for axis in axes), *rows[0].labels] if rows else [])
    problems = [
        f"two places give the label column '{column}': an axis and the rows"
        for column, count in columns.items()
        if count > 1
    ]
    setting: dict[str, str] = {}
    for place, place_keys in {**keys, "the rows": _all_keys(rows)}.items():
        for key in sorted(place_keys):
            if key in GIVEN_BY_THE_RUNNER:
                problems.append(f"{place}: {key} cannot be set by a study")
            elif key in setting:
                problems.append(f"{setting[key]} and {place} both set '{key}'; one of them may")
            setting[key] = place
    return problems


def _all_keys(choices: Iterable[Choice]) -> set[str]:
    return {key for choice in choices for key in choice.values}


def _same_names(study: Study) -> list[str]:
    counts = Counter(run.name for run in study.runs())
    return [
        f"{count} runs have the name '{name}'; give their rows or values labels that differ in "
        "letters or digits"
        for name, count in counts.items()
        if count > 1
    ]


def _figure_problems(study: Study) -> list[str]:
    names = Counter(figure.name for figure in study.figures)
    problems = [f"{count} figures have the name '{name}'" for name, count in names.items()]
    problems = [text for text, count in zip(problems, names.values(), strict=True) if count > 1]
    for figure in study.figures:
        for column, allowed in (pair for choice in figure.rows for pair in choice.items()):
            known = {row.labels.get(column) for row in study.rows} - {None}
            problems += [
                f"figure '{figure.name}': no row has the {column} '{label}'"
                for label in allowed
                if label not in known
            ]
    return problems


def _compare_problems(study: Study) -> list[str]:
    return [
        f"compare: {unknown_name('column', column, study.label_columns)}"
        for column in study.compare
        if column not in study.label_columns
    ]


def _published(
    file: ExtendedFile, given: _Published, study: Study, text: str | None
) -> PublishedTable:
    table = read_published(
        file.published_folder / given.file,
        study.columns,
        study.label_columns,
        given.leave_out,
        given.spread_as_fraction,
        text=text,
    )
    return replace(table, notes=tuple(given.notes))


def _unmatched(study: Study, table: PublishedTable | None) -> list[str]:
    keys = [cell.key for cell in study.cells() if cell.published]
    return mismatches(table, study.label_columns, keys) if table else []
