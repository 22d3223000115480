"""Tables: CSV and Parquet files."""

from __future__ import annotations

import json
import warnings
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from bfl.data.datasets.answers import answers_of, columns_of, target_column
from bfl.data.datasets.base import Dataset, ReadingSource, dataset_sources, meant
from bfl.data.datasets.encoding import (
    Column,
    Encoding,
    check_columns,
    check_complete,
    gaps_of,
    said_of_inputs,
    said_of_texts,
)
from bfl.data.datasets.paths import PathSource
from bfl.data.datasets.reading import LEFT_OUT, TARGET, TASK, TEST_SHARE, Reading
from bfl.data.datasets.subset import train_and_test
from bfl.errors import DataError
from bfl.texts import few

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = ".columns.json"
"""Ending of the file beside a table that says its columns and classes, as network.json does."""

PARQUET = (".parquet", ".pq")
SUFFIXES = (".csv", *PARQUET)
"""Endings of the files that hold tables."""


class _Known(NamedTuple):
    """Knowledge of a table beforehand: its encoding, the classes, and the scale of its target."""

    encoding: Encoding | None = None
    names: tuple[str, ...] = ()
    target: Column | None = None


class Opened(NamedTuple):
    """A table's rows, what messages call it, and how many of its last rows are for testing."""

    rows: DataFrame
    where: str
    test: int | None = None
    known: _Known = _Known()


class TableSource(ReadingSource):
    """Base of sources that have rows and named columns; a new one overrides ``opened``."""

    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression")
    reads_keys: ClassVar[frozenset[str]] = frozenset({TEST_SHARE, TARGET, LEFT_OUT, TASK})

    @abstractmethod
    def opened(self, reading: Reading, location: str, data_dir: Path | None) -> Opened:
        """Return the table.

        Raises:
            ConfigurationError, DataError: There is none.
        """

    def load_in(self, reading: Reading, location: str, data_dir: Path | None) -> Dataset:
        """Return the data set of the table; its rows are on the scale of pixels (``Encoding``)."""
        rows, where, own_test, known = self.opened(reading, location, data_dir)
        target, left_out = target_column(where, rows, reading), reading.columns_left_out
        check_columns(left_out, rows, f"{where} ({LEFT_OUT})")
        inputs = rows.drop(columns=[target, *left_out])
        encoding, told = reading.encoding or known.encoding, list[str]()
        taken = [column.name for column in encoding.columns] if encoding else inputs.columns
        needed = rows[[name for name in rows.columns if name in {target, *taken}]]
        check_complete(needed, where, target, needed=encoding is not None)
        answers = answers_of(where, rows[target], reading.task, known.names)
        if own_test is None:
            train, test = train_and_test(answers.labels, reading.test_share)
        else:
            train, test = np.split(np.arange(len(rows)), [len(rows) - own_test])
        if not (train.size and test.size):
            raise DataError(
                f"{where} has {len(rows)} rows, of which test-share={reading.test_share} leaves "
                f"{train.size} for training and {test.size} for testing"
            )
        if not encoding:
            encoding = Encoding.of(inputs.iloc[train], where)
            line = said_of_inputs(inputs[: len(rows) - (own_test or 0)], train, left_out)
            told += [f"{where}: {each}" for each in (*said_of_texts(inputs), line) if each]
        images = encoding.encoded(inputs, where, tell=reading.encoding is not None)
        names = [column.name for column in encoding.columns]
        texts = any(column.categories for column in encoding.columns)
        how = "encoded (numbers standardised, categories 0 or 1)" if texts else "standardised"
        here = f"its inputs, {few(names)}, are {how} by its own {train.size} training rows"
        said = [answers.here] if known.encoding else [here, answers.here]
        true, scale = answers.true, known.target
        if reading.regression and true is not None and not scale:
            scale = Column.of(target, true[train], where)
            if not np.ptp(true[train]):
                raise DataError(
                    f"{where}: column '{target}' holds {true[0]:g} in all {train.size} "
                    "training rows; there is nothing to predict"
                )
        dataset = Dataset(
            name=f"{self.name}:{location}",
            train_images=images[train],
            train_labels=answers.labels[train],
            test_images=images[test],
            test_labels=answers.labels[test],
            class_names=answers.names,
            numbered_here="; ".join(filter(None, said)),
            split_here=own_test is None,
            train_columns=columns_of(rows.iloc[train]),
            test_columns=columns_of(rows.iloc[test]),
            encoding=encoding,
            target=scale,
            train_targets=None if true is None else true[train],
            test_targets=None if true is None else true[test],
            said=tuple(told),
            gaps=gaps_of(rows[left_out]),
        )
        dataset.check()
        return dataset


@dataset_sources.register("table")
class Table(PathSource, TableSource):
    """A table of rows and named columns: ``table:FILE.csv`` or ``table:FILE.parquet``.

    The column ``target`` has the classes, as texts or numbers, or with ``task="regression"`` a
    number.
    ``test-share`` of the rows are for testing; a folder with train.csv and test.csv (or .parquet)
    says which ones itself. All other columns but ``columns-left-out`` are inputs: numbers are
    standardised by the training rows of all clients, and categories become an input each, 0 or 1.
    A file FILE.columns.json, which is another run's network.json, says means, deviations,
    categories and classes beforehand. It takes a network of dense layers, such as ``model="mlp"``.
    Partitions may go by any column.
    """

    is_folder: ClassVar[bool | None] = None

    def files(self, location: str, data_dir: Path | None) -> tuple[Path, ...]:
        """Return the paths of the table's files, and of what says its columns, if there is one."""
        path = self.find(location, data_dir)
        parts = _parts(path) if path.is_dir() else [path]
        beside = path.with_suffix(COLUMNS)
        return (*parts, beside) if beside.is_file() else tuple(parts)

    def opened(self, reading: Reading, location: str, data_dir: Path | None) -> Opened:
        """Return the table in the file, or in the two files of a folder."""
        path = self.find(location, data_dir)
        known = _columns_file(path, regression=reading.regression)
        if not path.is_dir():
            return Opened(read_table(path), str(path), None, known)
        import pandas

        train, test = map(read_table, _parts(path))
        check_columns([str(name) for name in train.columns], test, f"{path} (test)")
        rows = pandas.concat([train, test[train.columns]], ignore_index=True)
        return Opened(rows, str(path), len(test), known)


def _parts(folder: Path) -> list[Path]:
    """Return the files of a folder's rows for training and for testing.

    Raises:
        DataError: One is missing, or there are several.
    """
    found = {
        part: [p for suffix in SUFFIXES if (p := folder / f"{part}{suffix}").is_file()]
        for part in ("train", "test")
    }
    for part, paths in found.items():
        if len(paths) != 1:
            raise DataError(
                f"{folder} is a folder, and has {len(paths)} tables of {part} rows; allowed: a "
                f"table's file, or a folder with train and test, each {' or '.join(SUFFIXES)}"
                f"{meant(folder, 'table')}"
            )
    return [path for (path,) in found.values()]


def read_table(path: Path) -> DataFrame:
    """Return the table in a CSV or Parquet file.

    Raises:
        DataError: It is none, is empty, or has a column twice.
    """
    import pandas

    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        hint = meant(path, "table")
        raise DataError(f"{path} is no table; its name ends with {', '.join(SUFFIXES)}{hint}")
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    try:
        rows = pandas.read_parquet(path) if suffix in PARQUET else _read_csv(path)
    # pandas, its parsers and PyArrow have exceptions of their own, by what is damaged.
    except Exception as error:
        problem: object = error
        if isinstance(error, UnicodeDecodeError):
            problem = "it is not in UTF-8; save it so, or give bfl.run a frame that pandas has read"
        raise DataError(f"{path} cannot be read as a table: {problem}".split("\n")[0]) from error
    return checked_table(rows, str(path))


def table_as_written(path: Path) -> DataFrame:
    """Return the columns of a table that ``read_table`` reads; a CSV's as texts, such as "007".

    A named index of a Parquet file is a column, unless one has its name.
    """
    import pandas

    if path.suffix.lower() in PARQUET:
        rows = pandas.read_parquet(path).rename(columns=str)
        names = set(rows.index.names)
        return rows.reset_index(drop=names == {None} or not names.isdisjoint(rows.columns))
    return pandas.read_csv(path, dtype=str, keep_default_na=False, index_col=False)


def checked_table(rows: DataFrame, where: str) -> DataFrame:
    """Return rows numbered from 0, their columns named by texts.

    Raises:
        DataError: There are none, or a column is there twice.
    """
    rows = rows.rename(columns=str).reset_index(drop=True)
    if rows.empty or not rows.columns.is_unique:
        raise DataError(f"{where} has {'no rows' if rows.empty else 'a column twice'}")
    return rows


def _read_csv(path: Path) -> DataFrame:
    """Return the rows of a CSV file.

    Raises:
        ValueError: A row has more fields than the header, or a name stands twice in it, both of
            which pandas would mend in a way of its own; or its columns are separated otherwise.
    """
    import pandas

    header = pandas.read_csv(path, header=None, nrows=1, dtype=str).iloc[0].dropna()
    if header.duplicated().any():
        raise ValueError(f"column '{header[header.duplicated()].iloc[0]}' stands in it twice")
    for mark in (";", "\t"):
        if len(header) == 1 and mark in header.iloc[0]:
            raise ValueError(
                f"its columns are separated by {mark!r}; allowed: commas. Mend it by "
                f"pandas.read_csv({path.name!r}, sep={mark!r}).to_csv({path.name!r}, index=False), "
                "with decimal=',' if its numbers have commas"
            )
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        return pandas.read_csv(path, index_col=False)


def _columns_file(path: Path, *, regression: bool) -> _Known:
    """Return what the file beside a table says; nothing without one."""
    beside = path.with_suffix(COLUMNS)
    if not beside.is_file():
        return _Known()
    try:
        content = json.loads(beside.read_text(encoding="utf-8"))
        names = tuple(map(str, content["class-names"]))
        scale = Column.from_dict(content["target"]) if regression else None
        return _Known(Encoding.from_list(content["columns"]), names, scale)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{beside} is no network.json of a run on a table: {error!r}") from error
