"""Tables: CSV and Parquet files."""

from __future__ import annotations

import codecs
import csv
import json
import re
import warnings
from collections.abc import Collection, Mapping
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from bfl.data.datasets import encoding as encodings
from bfl.data.datasets.base import Dataset, Labels, PathSource, dataset_sources
from bfl.data.datasets.reading import LEFT_OUT, SUMMED, TARGET, Reading
from bfl.data.datasets.subset import divide
from bfl.errors import DataError
from bfl.texts import decoded, few, printable

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TARGETS = ("target", "label", "class", "y")
"""Usual names of the column of classes, in the order of preference."""

HALVES = ("at most the median", "above the median")
"""Classes of a table whose target is a number, for what goes by labels, such as partitions."""

DECIMAL_COMMA = r"^\s*([+-]?[0-9]*),([0-9]+(?:[eE][+-]?[0-9]+)?)\s*$"
DECIMAL_POINT = r"\s*[+-]?[0-9]*\.[0-9]+\s*"
THOUSANDS = r"\s*[+-]?[1-9][0-9]{0,2}\.[0-9]{3}\s*"
"""Numbers of a CSV with semicolons, where a comma is free for decimals."""

WITH_POINT = " (with a point)"  # makes a number a text, where others have a comma
FIRST_LINES = 100  # which show what stands between columns
MANY_CLASSES = 20  # numbers from which on they are rather to be predicted as such
SUFFIXES = (CSV, PARQUET) = (".csv", ".parquet")


@dataset_sources.register("table")
class Table(PathSource):
    """A table of rows and named columns: ``table:FILE.csv`` or ``table:FILE.parquet``.

    The column ``target`` has the classes, as texts or numbers, or with ``task="regression"`` a
    number. ``test-share`` of the rows are for testing; a folder with train.csv and test.csv (or
    .parquet) says which ones itself. All other columns but ``columns-left-out`` are inputs:
    numbers are standardised by the training rows of all clients, and categories become an input
    each, 0 or 1. Missing values are refused, or filled (``missing``). It takes a network of dense
    layers, such as ``model="mlp"``. Partitions may go by any column.
    """

    is_folder: ClassVar[bool | None] = None
    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression")

    def files(self, location: str, data_dir: Path | None) -> tuple[Path, ...]:
        """Return the paths of the table's files."""
        return tuple(_parts(self.find(location, data_dir)))

    def load(self, location: str, data_dir: Path | None, reading: Reading) -> Dataset:
        """Return the data set of the table; its rows are on the scale of pixels (``Encoding``)."""
        import pandas

        path = self.find(location, data_dir)
        where = str(path)
        encoding, names, scale = _read_columns(reading)
        encoding = reading.encoding or encoding
        columns = encoding.columns if encoding else ()
        rows, *tested = (read_table(part, encoding) for part in _parts(path))
        own = len(rows)
        for test in tested:
            encodings.check_columns(list(rows.columns), test, f"{where} (test)")
            rows = pandas.concat([rows, test[rows.columns]], ignore_index=True)
        left_out = reading.left_out
        named = {TARGET: [reading.target] if reading.target else [], LEFT_OUT: left_out}
        encodings.check_named_columns(named, rows, where)
        target = target_column(where, rows, reading)
        others = [name for name in rows.columns if name not in (target, *left_out)]
        taken = [column.name for column in columns] if encoding else others
        encodings.check_columns(taken, rows, where)
        read = [name for name in rows.columns if name in (target, *taken)]
        whole = pandas.DataFrame({name: encodings.type_column(rows[name], where) for name in read})
        inputs = whole[taken]
        policies = {column.missing for column in columns} or {reading.missing}
        filled = encodings.REFUSE not in policies
        encodings.check_complete(whole, where, target, fixed=bool(columns), filled=filled)
        answers = answers_of(where, whole[target], reading.task, names)
        if tested:
            train, test_rows = np.split(np.arange(len(rows)), [own])
        else:
            train, test_rows = divide(answers.labels, encodings.columns_of(rows), reading, where)
        if not (train.size and test_rows.size):
            parts = f"{train.size} for training and {test_rows.size} for testing"
            share = f"of its {len(rows)} rows test-share={reading.test_share} leaves {parts}"
            raise DataError(f"{where}: {share}")
        if encoding:
            unseen, here = encoding.unseen(inputs), answers.here
        else:
            strays = _describe_strays(whole, where)
            encoding = encodings.Encoding.of(inputs.iloc[train], where, reading.missing)
            # Where sums follow, other tables may have seen what these training rows have not.
            summed = reading.table_columns == SUMMED
            unseen = [] if summed else encoding.unseen(inputs.iloc[test_rows])
            unseen += strays
            if answers.true is None and encodings.is_numeric(whole[target]):
                numbers = whole[target].nunique()
                hint = f'{numbers} numbers are classes; task="regression" predicts numbers'
                unseen += [f"column '{target}': {hint}"] * (numbers >= MANY_CLASSES)
            here = f"means and categories of its own {train.size} training rows"
        true = answers.true
        if true is not None and not scale:
            (scale,) = encodings.Encoding.of(pandas.DataFrame({target: true[train]}), where).columns
            if np.ptp(true[train]) == 0:
                raise DataError(f"{where}: column '{target}' holds one number in all training rows")
        images = encoding.encode(inputs, where)
        return Dataset(
            name=f"{self.name}:{location}",
            train_images=images[train],
            train_labels=answers.labels[train],
            test_images=images[test_rows],
            test_labels=answers.labels[test_rows],
            class_names=answers.names,
            numbered_here=here,
            split_here=not tested,
            train_columns=encodings.columns_of(rows.iloc[train]),
            test_columns=encodings.columns_of(rows.iloc[test_rows]),
            encoding=encoding,
            target=scale,
            train_targets=None if true is None else true[train],
            test_targets=None if true is None else true[test_rows],
            said=tuple(f"{where}: {line}" for line in unseen),
        )


def _describe_strays(rows: DataFrame, where: str) -> list[str]:
    """Return a line of each column that a text among numbers makes categories; refuse names."""
    lines = []
    for name in rows:
        stray, wrong = encodings.describe_stray(rows[name])
        if wrong:
            raise DataError(f"{where}: {stray}; allowed: numbers, or columns-left-out")
        if stray:  # the warning is kept, and the cell is a patient's
            place = stray.partition(" holds ")[0]
            lines.append(f"{place} holds a text, and all become categories")
    return lines


def _parts(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = []
    for part in ("train", "test"):
        files = [file for suffix in SUFFIXES if (file := path / f"{part}{suffix}").is_file()]
        if len(files) != 1:
            allowed = f"a file, or a folder with train and test, each {' or '.join(SUFFIXES)}"
            raise DataError(f"{path} has {len(files)} tables of {part} rows; allowed: {allowed}")
        found += files
    return found


Known = tuple[encodings.Encoding | None, tuple[str, ...], encodings.Column | None]
"""The encoding of columns, names of classes, and the target's column, as far as they are known."""


def _read_columns(reading: Reading) -> Known:
    if reading.table_columns in ("", SUMMED):
        return None, (), None
    try:
        content = json.loads(reading.table_columns)
        content = content.get("network", content)  # of a whole run.json
        names, columns = [*map(str, content["class-names"])], content["columns"]
        known = [str(column["name"]) for column in columns]
        if not known or len({*known}) < len(known) or len({*names}) < len(names):
            raise ValueError("no column, or one name twice")
        scale = encodings.Column.from_dict(content["target"]) if reading.regression else None
        encoding = encodings.Encoding(tuple(map(encodings.Column.from_dict, columns)))
        return encoding, tuple(names), scale
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"table-columns is no network.json of a table: {error!r}") from error


def read_table(path: Path, encoding: encodings.Encoding | None = None) -> DataFrame:
    """Return the table in a file, typed as ``type_column`` does; an encoding's categories stay."""
    import pandas

    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"{path} is no table; its name ends with {' or '.join(SUFFIXES)}")
    texts = {column.name: column.categories for column in encoding.columns} if encoding else {}
    try:
        rows = pandas.read_parquet(path) if suffix == PARQUET else _read_csv(path, texts)
    # pandas, its parsers and PyArrow have exceptions of their own, by what is damaged.
    except Exception as error:
        raise DataError(f"{path} cannot be read as a table: {error}".split("\n")[0]) from error
    rows = rows.rename(columns=lambda name: encodings.normalize(str(name))).reset_index(drop=True)
    if rows.empty or not rows.columns.is_unique:
        raise DataError(f"{path} has {'no rows' if rows.empty else 'a column twice'}")
    return rows


def _read_texts(path: Path) -> tuple[DataFrame, str]:
    """Return the cells of a CSV as they are written, and what stands between its columns."""
    import pandas

    try:
        text = decoded(path.read_bytes())
    except ValueError as error:
        raise ValueError(f'{error} (in Excel as "CSV UTF-8")') from error
    # What is in quotes separates nothing, and a name may have a comma without them.
    bare = re.sub('"[^"]*"', "", text).split("\n", FIRST_LINES)[:FIRST_LINES]
    lines = [line for line in bare if line.strip()]

    def rank(mark: str) -> tuple[int, ...]:
        header, *others = [line.count(mark) for line in lines] or [0]
        return (others.count(header), mark != ",", header) if header else (0,)

    separator = max(",;\t", key=rank)  # Excel may write a semicolon
    names = next(filter(None, csv.reader(StringIO(text), delimiter=separator)), [])
    if twice := [name for name in names if name and names.count(name) > 1]:
        raise ValueError(f"column '{twice[0]}' stands in it twice")  # pandas would number them
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        options = {"index_col": False, "keep_default_na": False, "low_memory": False}
        rows = pandas.read_csv(StringIO(text), sep=separator, dtype=str, **options)
    return rows.fillna(""), separator


def _read_csv(path: Path, texts: Mapping[str, Collection[str]]) -> DataFrame:
    written, separator = _read_texts(path)
    rows = written.replace(DECIMAL_COMMA, r"\1.\2", regex=True) if separator == ";" else written
    has_comma = rows.ne(written)

    def typed(values: Series[Any]) -> Series[Any]:
        given, found = written[values.name], encodings.type_column(values, str(path))
        marked, points = given + WITH_POINT, given.str.fullmatch(DECIMAL_POINT)
        if kinds := texts.get(encodings.normalize(values.name)):
            return values.where(~marked.isin(kinds), marked)
        # 1.234 may be a thousand where other numbers have a comma.
        doubtful = has_comma[values.name].any() or given[points].str.fullmatch(THOUSANDS).all()
        if doubtful and points.any() and has_comma.any(axis=None) and encodings.is_numeric(found):
            found = encodings.type_column(values.where(~points, marked), str(path))
        return found

    # Of the texts as they are written: pandas alone takes 007 for 7.
    return rows.where(rows.ne("")).apply(typed)


def write_beside(path: Path, added: DataFrame) -> bytes:
    """Return a CSV of the table in a file as it is written there, and of columns behind it.

    Of a CSV it has the separator, the decimal sign and the byte order mark. A Parquet file's named
    index is a column.
    """
    import pandas

    if path.suffix.lower() == PARQUET:
        rows, separator, mark = pandas.read_parquet(path).rename(columns=str), ",", False
        names = set(rows.index.names)
        rows = rows.reset_index(drop=names == {None} or not names.isdisjoint(rows.columns))
    else:
        rows, separator = _read_texts(path)
        mark = path.read_bytes().startswith(codecs.BOM_UTF8)
    decimal = "."
    if separator == ";":
        cells = rows.stack().str
        found = [cells.fullmatch(form).any() for form in (DECIMAL_COMMA, DECIMAL_POINT)]
        decimal = "," if found != [False, True] else "."
    for name in added.columns.intersection(rows.columns):
        given = name
        while given in rows:
            given += " (given)"
        rows = rows.rename(columns={name: given})
    text = str(rows.join(added).to_csv(index=False, sep=separator, decimal=decimal))
    return text.encode("utf-8-sig" if mark else "utf-8")


def target_column(path: Path | str, rows: DataFrame, reading: Reading) -> str:
    """Return the name of the column that is predicted."""
    if reading.target:
        encodings.check_named_columns({TARGET: [reading.target]}, rows, str(path))
        return reading.target
    for name in TARGETS:
        if name in rows.columns:
            return name
    names = f"{TARGET}, which names the one with the answers: {', '.join(rows.columns)}"
    raise DataError(f"{path} has no column {' or '.join(TARGETS)}; allowed: the key {names}")


class Answers(NamedTuple):
    """A table's target.

    Attributes:
        labels: The classes (N,).
        true: The numbers that are predicted (N,); None: classes are.
        here: How classes were numbered, where that depends on these rows alone.
    """

    labels: Labels
    true: npt.NDArray[Any] | None
    names: tuple[str, ...]
    here: str = ""


def answers_of(path: Path | str, column: Series[Any], task: str, names: tuple[str, ...]) -> Answers:
    """Return the answers of rows by ``names``, the known classes, or by their own in order."""
    values, where = encodings.type_column(column, str(path)), f"{path}: column '{column.name}'"
    encodings.check_complete(values.to_frame(), str(path), str(column.name), fixed=True)
    if task == "regression":
        numbers = encodings.as_numbers(values, str(path), 'numbers, or task="classification"')
        labels = (numbers > np.median(numbers)).astype(np.int64)
        return Answers(labels, numbers, HALVES)
    given = values.to_numpy()
    if given.dtype.kind == "f":
        if (broken := given != np.rint(given)).any():
            allowed = 'classes, words or whole numbers, or task="regression" to predict numbers'
            found = f"{given[broken][0]:g} in row {broken.argmax() + 1}"
            raise DataError(f"{where} holds {found}; allowed: {allowed}")
        given = given.astype(np.int64)
    if given.dtype.kind not in "biu":
        given = given.astype(str)
    present, positions = np.unique(given, return_inverse=True)
    own = list(map(str, present))
    known = names or tuple(own)
    if strangers := [name for name in own if name not in known]:
        stranger = printable(strangers[0])
        raise DataError(f"{where} holds the class '{stranger}'; allowed: {few(known)}")
    if len(known) > encodings.MOST_CATEGORIES and encodings.is_numeric(values):
        raise DataError(
            f"{where} has {len(known)} classes, and at most {encodings.MOST_CATEGORIES} are taken "
            'of numbers, which task="regression" predicts'
        )
    labels = np.array([known.index(name) for name in own], np.int64)[positions]
    here = f"column '{column.name}' holds texts, numbered in their order: {few(known)}"
    return Answers(labels, None, known, "" if names or encodings.is_numeric(values) else here)
