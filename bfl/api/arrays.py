"""Data in memory for a run, whose processes read them from a file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.data.datasets.answers import LABEL
from bfl.data.datasets.archive import CALLED
from bfl.data.datasets.base import digest_of
from bfl.data.datasets.subset import train_and_test
from bfl.errors import ConfigurationError, DataError
from bfl.files import write_atomically

if TYPE_CHECKING:
    from pandas import DataFrame

FOLDER = ".data"
"""Folder of the files below ``output-dir``, each named by the digest of what it holds."""

Data = Any
"""Arrays (x, y) or (x_train, y_train, x_test, y_test), or a data frame with a target column."""


def stored(data: Data, output_dir: str, test_share: float) -> str:
    """Return the key ``dataset`` of data in memory, which are written to a file once.

    Args:
        data: Images (N, H, W[, C]) or rows (N, columns) with labels (N,), or 0 and 1 of several
            labels (N, L); both splits of images with their labels; or a data frame.
        output_dir: The key ``output-dir``.
        test_share: The key ``test-share``, for images without a test part.

    Raises:
        ConfigurationError: It is none of these.
        DataError: It cannot be written, or not be split.
    """
    import pandas

    if isinstance(data, pandas.DataFrame):
        return _stored_table(data, output_dir)
    arrays = [np.asarray(array) for array in data] if isinstance(data, Sequence) else []
    if len(arrays) not in (2, 4):
        raise ConfigurationError(
            f"data is {type(data).__name__}; allowed: (x, y), (x_train, y_train, x_test, y_test), "
            "or a data frame"
        )
    x, y, *_ = arrays = [a.astype(str) if a.dtype.kind == "O" else a for a in arrays]
    if y.ndim == 2 and y.shape[1] == 1:
        y = arrays[1] = y[:, 0]
    if len(x) != len(y):
        raise DataError(f"data has {len(x)} examples and {len(y)} labels")
    if x.ndim == 2 and len(arrays) == 2:
        frame = pandas.DataFrame(x, columns=[f"x{number}" for number in range(x.shape[1])])
        columns = {f"{LABEL}{number}": column for number, column in enumerate(y.T)}
        answers = columns if y.ndim == 2 else {"target": y}
        return _stored_table(frame.assign(**answers), output_dir)
    if len(arrays) == 2:
        _, classes = np.unique(y, axis=0, return_inverse=True)
        train, test = train_and_test(classes.reshape(-1).astype(np.int64), test_share)
        arrays = [x[train], y[train], x[test], y[test]]
    buffer = io.BytesIO()
    np.savez(buffer, **dict(zip(CALLED.values(), arrays, strict=True)))  # type: ignore[arg-type]
    return f"npz:{_written(output_dir, digest_of(*arrays), 'npz', buffer.getbuffer())}"


def _stored_table(frame: DataFrame, output_dir: str) -> str:
    content = frame.to_parquet(index=False)
    whole: npt.NDArray[np.uint8] = np.frombuffer(content, np.uint8)
    return f"table:{_written(output_dir, digest_of(whole), 'parquet', content)}"


def _written(output_dir: str, digest: str, suffix: str, content: bytes | memoryview) -> Path:
    path = Path(output_dir).absolute() / FOLDER / f"{digest[:16]}.{suffix}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file():
            write_atomically(path, content)
    except OSError as error:
        raise DataError(f"data cannot be written to {path}: {error.strerror or error}") from error
    return path
