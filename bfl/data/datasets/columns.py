"""Columns of tables: each is read as a whole, and holds numbers or texts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bfl.data.partitions.base import Columns
from bfl.errors import DataError, unknown_name
from bfl.texts import few, printable

if TYPE_CHECKING:
    from pandas import DataFrame, Series

SHOWN = 5
"""Most columns or categories that a message names."""

NO_VALUE = frozenset(
    ("NA", "N/A", "n/a", "#N/A", "NaN", "nan", "-nan", "NULL", "null", "None", "<NA>", "NAN")
)
"""Words that are no value among numbers; among texts they are texts, and only "" is no value."""

CODE = r"[+-]?0[0-9]+"
"""A whole number with zeros before it, which is rather a name than a number."""

_BOOLEANS = frozenset(("true", "false"))
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u2060\ufeff]")


def normalize(text: str) -> str:
    """Return a text as its name is known: composed (NFC), without spaces or what has no width."""
    printable = _UNPRINTABLE.sub("", text)
    return unicodedata.normalize("NFC", printable).strip()


class TypedColumn(NamedTuple):
    """A column of numbers, or of normalized texts and None, with notes on how it was read."""

    values: Series[Any]
    notes: tuple[str, ...] = ()


def type_column(values: Series[Any], where: str) -> TypedColumn:
    """Return a column of any type as numbers if all its values are numbers, and else as texts.

    Decimals and texts such as "1.5" are numbers. Whole numbers with zeros before them, such as
    "007", are texts. Dates stay dates.
    """
    import pandas
    from pandas.api import types

    name = printable(str(values.name))
    numbers_or_dates = isinstance(values.dtype, np.dtype) and values.dtype.kind in "biufmM"
    if numbers_or_dates or types.is_datetime64_any_dtype(values):
        return TypedColumn(values)
    objects = values.astype(object).where(values.notna(), None)
    kind = types.infer_dtype(objects, skipna=True)
    if kind in ("decimal", "integer", "floating", "mixed-integer-float", "boolean", "empty"):
        return TypedColumn(objects.astype(float))
    if kind in ("date", "datetime", "datetime64"):
        return TypedColumn(pandas.to_datetime(objects))
    strange = [v for v in objects if v is not None and not isinstance(v, str | int | float)]
    if strange:
        kind = type(strange[0]).__name__
        raise DataError(
            f"{where}: column '{name}' holds values of the type {kind}, such as "
            f"'{printable(str(strange[0]))[:60]}'; allowed: numbers or texts, one a row, or "
            "columns-left-out"
        )
    texts, notes = normalize_texts(objects)
    words = sorted(NO_VALUE.intersection(texts.dropna()))
    shown = ", ".join(f"'{word}'" for word in words)
    found = f"column '{name}' holds the text {shown} in {int(texts.isin(words).sum())} rows"
    candidates = [text for text in set(texts.dropna()) if text not in NO_VALUE]
    numbers = pandas.to_numeric(pandas.Series(candidates, dtype=object), errors="coerce")
    coded = any(re.fullmatch(CODE, text) for text in candidates)
    booleans = {text.lower() for text in candidates} <= _BOOLEANS
    if not candidates or not (booleans or (numbers.notna().all() and not coded)):
        taken = (f"{found}, taken as any other",) if words else ()
        return TypedColumn(texts, notes + taken)
    notes += (f"{found}, which is no value among numbers",) if words else ()
    known = texts.where(~texts.isin(NO_VALUE))
    if booleans:
        values = known.map(lambda text: text.lower() == "true", na_action="ignore")
        return TypedColumn(values.astype(float if values.isna().any() else bool), notes)
    return TypedColumn(pandas.to_numeric(known, errors="coerce"), notes)


def normalize_texts(values: Series[Any]) -> TypedColumn:
    """Return values of any type as normalized texts, None for no value or an empty one."""
    objects = values.astype(object).where(values.notna(), None)
    given = objects.map(str, na_action="ignore")
    known = {text: normalize(text) for text in given.dropna().unique()}
    texts = given.map(known, na_action="ignore").astype(object)
    changed = [text for text, new in known.items() if text != new]
    note = (
        f"column '{printable(str(objects.name))}': {int(given.isin(changed).sum())} values lose "
        "spaces or marks around them, or are composed (NFC)"
    )
    complete = texts.where(texts.notna() & (texts != ""), None)
    return TypedColumn(complete, (note,) if changed else ())


def texts_of(values: Series[Any]) -> npt.NDArray[np.object_]:
    """Return values as the texts that categories are named by, None for no value."""
    return np.asarray(normalize_texts(values).values, object)


def is_numeric(values: Series[Any]) -> bool:
    """Return whether a typed column holds numbers."""
    return values.dtype.kind in "biuf"


def type_rows(rows: DataFrame, where: str) -> tuple[DataFrame, tuple[str, ...]]:
    """Return typed columns, and what is to be said of them, see ``type_column``."""
    import pandas

    typed = {name: type_column(rows[name], where) for name in rows.columns}
    notes = [f"{where}: {note}" for column in typed.values() for note in column.notes]
    values = {name: column.values for name, column in typed.items()}
    return pandas.DataFrame(values, index=rows.index), tuple(notes)


def check_columns(names: Sequence[str], rows: DataFrame, where: str) -> None:
    """Refuse names that are those of no column."""
    known = [str(name) for name in rows.columns]
    for name in names:
        if name not in known:
            raise DataError(f"{where}: {unknown_name('column', name, known)}")


def check_complete(
    rows: DataFrame, where: str, target: str = "", *, fixed: bool = False, filled: bool = False
) -> None:
    """Refuse typed rows in which a value is missing, or is no finite number.

    Args:
        target: The column that is predicted, and so can be neither filled nor left out.
        fixed: Whether a run takes all columns, so that none can be left out.
        filled: Whether missing values of the others are filled.
    """
    empty, infinite = rows.isna(), rows.isin([np.inf, -np.inf])
    refused = empty & (rows.columns == target) if filled else empty
    wrong = infinite | refused
    counts = wrong.sum()[wrong.any()]
    if counts.empty:
        return
    column = counts.index[0]
    row = int(wrong[column].to_numpy().argmax())
    missing = bool(empty[column].iloc[row])
    inputs = not fixed and target not in counts
    finite = not filled and not infinite.any(axis=None)
    shown = few([f"'{name}' {count}" for name, count in counts.items()], SHOWN)
    raise DataError(
        f"{where}: row {row + 1} (from 1, without the header) holds "
        f"{'no value' if missing else rows[column].iloc[row]} in column '{column}'"
        f"{' (an empty cell or, among numbers, a word such as NA)' * missing}; rows with such "
        f"cells: {shown}; allowed: finite values, or a table without these rows"
        + ", columns-left-out" * inputs
        + ', or missing="mean" or "indicator"' * (inputs and finite)
    )


def first_text(values: Series[Any]) -> tuple[int, str]:
    """Return the first value that is no number, else the first one, with its position."""
    import pandas

    row = int(pandas.to_numeric(values, errors="coerce").isna().to_numpy().argmax())
    return row, printable(str(values.iloc[row]))


def columns_of(rows: DataFrame) -> Columns:
    """Return all columns as arrays, those of anything but numbers as texts; "" is no value."""
    return {
        name: values.to_numpy()
        if values.to_numpy().dtype.kind in "biuf"
        else normalize_texts(values).values.fillna("").to_numpy(str)
        for name, values in rows.items()
    }
