"""Data in memory for a run, whose processes read them from a file."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bfl.data.datasets.archive import CALLED
from bfl.data.datasets.base import digest_of
from bfl.data.datasets.subset import train_and_test
from bfl.errors import ConfigurationError, DataError
from bfl.files import write_atomically

if TYPE_CHECKING:
    from pandas import DataFrame

FOLDER, SHOWN = ".data", "data=…"
"""The folder of the files below ``output-dir``, and the name of data in memory in messages."""

Data = Any
"""Arrays (x, y) or (x_train, y_train, x_test, y_test), or a data frame with a target column."""


def store(data: Data, output_dir: str, test_share: float) -> str:
    """Return the key ``dataset`` of data in memory, which are written to a file once.

    Args:
        data: Images (N, H, W[, C]) or rows (N, columns) with labels (N,); both splits of them with
            their labels; or a data frame.
        test_share: The key ``test-share``, for images without a test part.
    """
    import pandas

    if isinstance(data, pandas.DataFrame):
        return _stored_table([data], output_dir)
    arrays = [np.asarray(array) for array in data] if isinstance(data, Sequence) else []
    if len(arrays) not in (2, 4):
        raise ConfigurationError(
            f"data is {type(data).__name__}; allowed: (x, y), (x_train, y_train, x_test, y_test), "
            "or a data frame"
        )
    arrays = [a.astype(str) if a.dtype.kind == "O" else a for a in arrays]
    arrays = [a[:, 0] if i % 2 and a.shape[1:] == (1,) else a for i, a in enumerate(arrays)]
    parts = list(zip(arrays[::2], arrays[1::2], strict=True))
    for x, y in parts:
        if len(x) != len(y):
            raise DataError(f"data has {len(x)} examples and {len(y)} labels")
        if y.ndim != 1:
            raise DataError(f"data has labels of the shape {y.shape}; allowed: (N,), one of each")
    if all(x.ndim == 2 for x, _ in parts):
        frames = [
            pandas.DataFrame(x).rename(columns="x{}".format).assign(target=y) for x, y in parts
        ]
        return _stored_table(frames, output_dir)
    classes, numbers = np.unique(np.concatenate(arrays[1::2]), return_inverse=True)
    if len(parts) == 1:
        train, test = train_and_test(numbers.astype(np.int64), test_share)
        arrays = [x[train], y[train], x[test], y[test]]
    named = dict(zip(CALLED.values(), arrays, strict=True))
    if classes.dtype.kind == "U":
        named |= {array: np.searchsorted(classes, named[array]) for array in ("y_train", "y_test")}
        named["class_names"] = classes
    buffer = io.BytesIO()
    np.savez(buffer, **named)  # type: ignore[arg-type]
    name = f"{digest_of(*named.values())[:16]}.npz"
    return f"npz:{_written(output_dir, name, buffer.getbuffer())}"


@contextmanager
def naming_data(word: str) -> Iterator[None]:
    """Have a block's refusals name ``data=`` in place of the key that ``store`` has returned."""
    try:
        yield
    except (ConfigurationError, DataError) as error:
        source, _, path = word.partition(":")
        text = str(error)
        for spelled in (path, str(Path(path).resolve())) if word else ():
            text = text.replace(f"{source}:{spelled}", SHOWN).replace(spelled, SHOWN)
        if text == str(error):
            raise
        raise type(error)(text) from None


def _stored_table(parts: Sequence[DataFrame], output_dir: str) -> str:
    contents = [part.to_parquet(index=False) for part in parts]
    digest = digest_of(*(np.frombuffer(content, np.uint8) for content in contents))
    if len(contents) == 1:
        return f"table:{_written(output_dir, f'{digest[:16]}.parquet', contents[0])}"
    for name, content in zip(("train", "test"), contents, strict=True):
        path = _written(output_dir, f"{digest[:16]}/{name}.parquet", content)
    return f"table:{path.parent}"


def _written(output_dir: str, name: str, content: bytes | memoryview) -> Path:
    path = Path(output_dir).absolute() / FOLDER / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file():
            write_atomically(path, content)
    except OSError as error:
        raise DataError(f"data cannot be written to {path}: {error.strerror or error}") from error
    return path
