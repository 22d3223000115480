"""Tables: CSV and Parquet files."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.base import Dataset, Labels, PathSource, dataset_sources, suggest_word
from bfl.data.datasets.encoding import (
    CODE,
    FEW_ROWS,
    MOST_CATEGORIES,
    REFUSE,
    SHOWN,
    Column,
    Encoding,
    as_numbers,
    check_columns,
    check_complete,
    columns_of,
    first_text,
    is_numeric,
    normalize,
    normalize_texts,
    type_column,
)
from bfl.data.datasets.reading import LEFT_OUT, SUMMED, TARGET, Reading
from bfl.data.datasets.subset import divide
from bfl.errors import DataError
from bfl.texts import few, printable

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TARGETS = ("target", "label", "class", "y")
"""Usual names of the column of classes, in the order of preference."""

HALVES = ("at most the median", "above the median")
"""Classes of a table whose target is a number, for what goes by labels, such as partitions."""

COLUMNS = ".columns.json"
"""Ending of the file beside a table that says its columns and classes, as run.json does."""

PARQUET = (".parquet", ".pq")
SUFFIXES = (".csv", *PARQUET)

_ID = re.compile(r"(?:(?:^|[\W_])(?i:id|index)|[a-z](?:Id|ID|Index))$")
"""Names of columns that number rows, in whatever order."""


@dataset_sources.register("table")
class Table(PathSource):
    """A table of rows and named columns: ``table:FILE.csv`` or ``table:FILE.parquet``.

    The column ``target`` has the classes, as texts or numbers, or with ``task="regression"`` a
    number. ``test-share`` of the rows are for testing; a folder with train.csv and test.csv (or
    .parquet) says which ones itself. All other columns but ``columns-left-out`` are inputs:
    numbers are standardised by the training rows of all clients, and categories become an input
    each, 0 or 1. Missing values are refused, or filled (``missing``). A file FILE.columns.json,
    another run's network.json, says means, deviations, categories and classes beforehand.
    It takes a network of dense layers, such as ``model="mlp"``. Partitions may go by any column.
    """

    is_folder: ClassVar[bool | None] = None
    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression")

    def files(self, location: str, data_dir: Path | None) -> tuple[Path, ...]:
        """Return the paths of the table's files, and of what says its columns, if there is one."""
        path = self.find(location, data_dir)
        beside = path.with_suffix(COLUMNS)
        return (*_parts(path), *([beside] if beside.is_file() else []))

    def load(self, location: str, data_dir: Path | None, reading: Reading) -> Dataset:
        """Return the data set of the table; its rows are on the scale of pixels (``Encoding``)."""
        import pandas

        path = self.find(location, data_dir)
        where, known = str(path), _known_columns(path, reading)
        encoding = reading.encoding or known.encoding
        columns = encoding.columns if encoding else ()
        texts = [column.name for column in columns if column.categories]
        rows, *tested = (read_table(part, texts) for part in _parts(path))
        own = len(rows)
        for test in tested:
            check_columns([str(name) for name in rows.columns], test, f"{where} (test)")
            rows = pandas.concat([rows, test[rows.columns]], ignore_index=True)
        target, left_out = target_column(where, rows, reading), reading.columns_left_out
        check_columns(left_out, rows, f"{where} ({LEFT_OUT})")
        others = [name for name in rows.columns if name not in (target, *left_out)]
        taken = [column.name for column in columns] if encoding else others
        check_columns(taken, rows, where)
        read = [name for name in rows.columns if name in (target, *taken)]
        typed = {name: type_column(rows[name], where) for name in read}
        whole = pandas.DataFrame({name: values for name, (values, _) in typed.items()})
        inputs = whole[taken]
        filled = REFUSE not in ({column.missing for column in columns} or {reading.missing})
        check_complete(whole, where, target, fixed=bool(columns), filled=filled)
        answers = answers_of(where, whole[target], reading.task, known.names)
        if tested:
            train, test_rows = np.split(np.arange(len(rows)), [own])
        else:
            train, test_rows = divide(answers.labels, columns_of(rows), reading, where)
        if not (train.size and test_rows.size):
            raise DataError(
                f"{where} has {len(rows)} rows, of which test-share={reading.test_share} leaves "
                f"{train.size} for training and {test_rows.size} for testing"
            )
        notes = [note for _, of_column in typed.values() for note in of_column]
        notes += [note for name in left_out for note in normalize_texts(rows[name])[1]]
        said, here = [f"{where}: {note}" for note in notes], answers.here
        if known.encoding:
            said += [f"{where}: {line}" for line in known.encoding.unseen(inputs)]
        if not encoding:
            encoding = Encoding.of(inputs.iloc[train], where, reading.missing)
            unseen = encoding.unseen(inputs.iloc[test_rows])
            lines = (
                *_notes_of_texts(inputs if reading.regression else whole),
                *_notes_of_inputs(inputs[:own], train, left_out),
                *(f"of the test rows, {line}" for line in unseen),
            )
            said += [f"{where}: {line}" for line in lines]
            here = "; ".join(filter(None, (_encoded_here(encoding, train.size), here)))
        images = encoding.encoded(inputs, where, tell=reading.encoding is not None)
        true, scale = answers.true, known.target
        if true is not None and not scale:
            (scale,) = Encoding.of(pandas.DataFrame({target: true[train]}), where).columns
            if scale.lowest == scale.highest:
                raise DataError(f"{where}: column '{target}' holds one number in all training rows")
        return Dataset(
            name=f"{self.name}:{location}",
            train_images=images[train],
            train_labels=answers.labels[train],
            test_images=images[test_rows],
            test_labels=answers.labels[test_rows],
            class_names=answers.names,
            numbered_here=here,
            split_here=not tested,
            train_columns=columns_of(rows.iloc[train]),
            test_columns=columns_of(rows.iloc[test_rows]),
            encoding=encoding,
            target=scale,
            train_targets=None if true is None else true[train],
            test_targets=None if true is None else true[test_rows],
            said=tuple(said),
        )


def _parts(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = []
    for part in ("train", "test"):
        files = [file for suffix in SUFFIXES if (file := path / f"{part}{suffix}").is_file()]
        if len(files) != 1:
            raise DataError(
                f"{path} is a folder, and has {len(files)} tables of {part} rows; allowed: a "
                f"table's file, or a folder with train and test, each {' or '.join(SUFFIXES)}"
                f"{suggest_word(path, 'table')}"
            )
        found += files
    return found


class _Known(NamedTuple):
    encoding: Encoding | None = None
    names: tuple[str, ...] = ()
    target: Column | None = None


def _known_columns(path: Path, reading: Reading) -> _Known:
    beside = path.with_suffix(COLUMNS)
    given = "" if reading.columns == SUMMED else reading.columns
    if not given and not beside.is_file():
        return _Known()
    try:
        content = json.loads(given or beside.read_text(encoding="utf-8"))
        content = content.get("network", content)  # of a whole run.json
        names, columns = [*map(str, content["class-names"])], content["columns"]
        known = [str(column["name"]) for column in columns]
        if not known or len({*known}) < len(known) or len({*names}) < len(names):
            raise ValueError("no column, or one name twice")
        scale = Column.from_dict(content["target"]) if reading.regression else None
        return _Known(Encoding.from_list(columns), tuple(names), scale)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        source = "table-columns" if given else str(beside)
        raise DataError(f"{source} is no network.json of a run on a table: {error!r}") from error


def read_table(path: Path, texts: Collection[str] = ()) -> DataFrame:
    """Return the table in a file; words such as NA stay words, and ``texts`` names texts."""
    import pandas

    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        hint = suggest_word(path, "table")
        raise DataError(f"{path} is no table; its name ends with {', '.join(SUFFIXES)}{hint}")
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    try:
        rows = pandas.read_parquet(path) if suffix in PARQUET else _read_csv(path, texts)
    # pandas, its parsers and PyArrow have exceptions of their own, by what is damaged.
    except Exception as error:
        problem: object = error
        if isinstance(error, UnicodeDecodeError):
            problem = "it is not in UTF-8; save it so"
        raise DataError(f"{path} cannot be read as a table: {problem}".split("\n")[0]) from error
    rows = rows.rename(columns=lambda name: normalize(str(name))).reset_index(drop=True)
    if rows.empty or not rows.columns.is_unique:
        raise DataError(f"{path} has {'no rows' if rows.empty else 'a column twice'}")
    return rows


def _read_csv(path: Path, texts: Collection[str]) -> DataFrame:
    import pandas

    first = pandas.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False).iloc[0]
    header = first[first != ""]
    if header.duplicated().any():
        raise ValueError(f"column '{header[header.duplicated()].iloc[0]}' stands in it twice")
    for mark in (";", "\t"):
        if len(header) == 1 and mark in header.iloc[0]:
            raise ValueError(f"its columns are separated by {mark!r}; allowed: commas")
    with warnings.catch_warnings():
        warnings.simplefilter("error", pandas.errors.ParserWarning)
        options = {"index_col": False, "keep_default_na": False, "na_values": [""]}
        written = pandas.read_csv(path, dtype=str, low_memory=False, **options)
        # pandas takes 007 for 7: a column with such codes is texts, as it is in a Parquet file.
        kept = [
            name
            for name in written.columns
            if normalize(name) in texts or written[name].str.strip().str.fullmatch(CODE).any()
        ]
        types = dict.fromkeys(kept, str)
        return pandas.read_csv(path, dtype=types, low_memory=False, **options)


def table_as_written(path: Path) -> DataFrame:
    """Return the columns of a table; a CSV's as texts, and a Parquet file's named index as one."""
    import pandas

    if path.suffix.lower() in PARQUET:
        rows = pandas.read_parquet(path).rename(columns=str)
        names = set(rows.index.names)
        return rows.reset_index(drop=names == {None} or not names.isdisjoint(rows.columns))
    return pandas.read_csv(path, dtype=str, keep_default_na=False, index_col=False)


def target_column(path: Path | str, rows: DataFrame, reading: Reading) -> str:
    """Return the name of the column that is predicted."""
    if reading.target:
        check_columns([reading.target], rows, f"{path} ({TARGET})")
        return reading.target
    for name in TARGETS:
        if name in rows.columns:
            return name
    raise DataError(
        f"{path} has no column {' or '.join(TARGETS)}; say which has the answers in the key "
        f"{TARGET}: {', '.join(rows.columns)}"
    )


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
    notes: tuple[str, ...] = ()


def answers_of(path: Path | str, column: Series[Any], task: str, names: tuple[str, ...]) -> Answers:
    """Return the answers of rows by ``names``, the known classes, or by their own in order."""
    values, found = type_column(column, str(path))
    check_complete(values.to_frame(), str(path), str(column.name))
    notes, where = tuple(f"{path}: {note}" for note in found), f"{path}: column '{column.name}'"
    if task == "regression":
        numbers = as_numbers(values, str(path), 'numbers, or task="classification"')
        labels = (numbers > np.median(numbers)).astype(np.int64)
        return Answers(labels, numbers, HALVES, notes=notes)
    given = values.to_numpy()
    if given.dtype.kind == "f":
        if (broken := given != np.rint(given)).any():
            raise DataError(
                f"{where} holds {given[broken][0]:g} in row {broken.argmax() + 1}; allowed: "
                'classes, words or whole numbers, or task="regression" to predict numbers'
            )
        given = given.astype(np.int64)
    if given.dtype.kind not in "biu":
        given = given.astype(str)
    present, positions = np.unique(given, return_inverse=True)
    own = list(map(str, present))
    known = names or tuple(own)
    if strangers := [name for name in own if name not in known]:
        raise DataError(
            f"{where} holds the class '{printable(strangers[0])}'; allowed: {few(known)}"
        )
    if len(known) > MOST_CATEGORIES and is_numeric(values):
        raise DataError(
            f"{where} has {len(known)} classes, and at most {MOST_CATEGORIES} are taken of "
            'numbers, which task="regression" predicts'
        )
    labels = np.array([known.index(name) for name in own], np.int64)[positions]
    here = f"column '{column.name}' holds texts, numbered in their order: {few(known)}"
    return Answers(labels, None, known, "" if names or is_numeric(values) else here, notes)


def _encoded_here(encoding: Encoding, rows: int) -> str:
    numbers = [column.name for column in encoding.columns if not column.categories]
    kinds = [f"{c.name} ({len(c.categories)})" for c in encoding.columns if c.categories]
    parts = [f"{len(numbers)} of numbers, standardised: {few(numbers)}"] * bool(numbers)
    parts += [f"{len(kinds)} of categories, an input each: {few(kinds)}"] * bool(kinds)
    return f"columns by its own {rows} training rows: {'; '.join(parts)}"


def _notes_of_inputs(
    rows: DataFrame, train: npt.NDArray[np.int64], left_out: Sequence[str]
) -> Iterator[str]:
    found: dict[str, str] = {}
    for name, values in rows.items():
        if values.iloc[train].nunique(dropna=False) == 1:
            found[str(name)] = "has one value"
        elif is_numeric(values) and len(values) > FEW_ROWS:
            numbers = values.to_numpy(np.float64)
            distinct = _ID.search(str(name)) and np.unique(numbers).size == numbers.size
            whole = np.array_equal(numbers, np.rint(numbers))
            if whole and (distinct or (np.diff(numbers) == 1).all()):
                found[str(name)] = "numbers the rows"
    if found:
        shown = few([f"'{name}' {why}" for name, why in found.items()], SHOWN)
        without = printable(",".join([*left_out, *found]))
        yield f'inputs that may say nothing: {shown}; columns-left-out="{without}" drops them'


def _notes_of_texts(rows: DataFrame) -> Iterator[str]:
    import pandas

    for name, values in rows.items():
        if is_numeric(values) or values.dtype.kind in "mM":
            continue
        numeric = pandas.to_numeric(values, errors="coerce").notna()
        if not numeric.all() and max(numeric.mean(), numeric[~values.duplicated()].mean()) > 0.5:
            row, text = first_text(values)
            yield (
                f"column '{printable(str(name))}' becomes categories: {numeric.sum()} of "
                f"{len(values)} rows hold numbers, and row {row + 1} (from 1, without the header) "
                f"holds '{text}'"
            )
