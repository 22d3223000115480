"""Files of a folder, read and written as a whole, with errors that name the file.

Each file is written to a temporary file beside it and then renamed, so no reader sees half a file.
"""

from __future__ import annotations

import gzip
import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.archives import ArrayFile, Shapes, open_arrays
from bfl.closing.conformal import SETS
from bfl.closing.feature_density import SCORES
from bfl.errors import DataError, PosteriorError, RunError
from bfl.evaluation.prediction.predictions import IntArray, Predictions
from bfl.evaluation.uncertainty.base import measure_all
from bfl.files import write_atomically
from bfl.posteriors.manifest import Manifest
from bfl.posteriors.posterior import Posterior
from bfl.texts import decoded, from_json, from_toml

CONFIG = "config.toml"
POSTERIOR = "posterior.npz"
BEST_POSTERIOR = "best-posterior.npz"
PREDICTIONS = "predictions.npz"

Arrays = Mapping[str, npt.NDArray[Any]]

CORRUPT = (
    *(ValueError, KeyError, TypeError, AttributeError),
    *(EOFError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error),
)
"""Errors of NumPy, zip, JSON and TOML for truncated files and files of another format."""


@dataclass(frozen=True)
class Files:
    """The files of a folder.

    Readers raise a DataError that names the file if it is missing or corrupt; writers raise a
    RunError that names the file if it cannot be written.
    """

    path: Path

    def holds(self, file: str) -> bool:
        """Return whether the folder has a file."""
        return (self.path / file).is_file()

    @contextmanager
    def decoding(self, file: str) -> Iterator[None]:
        """Convert the errors of a corrupt file into a DataError that names it."""
        try:
            yield
        except (*CORRUPT, PosteriorError) as error:
            raise DataError(f"{self.path / file} is corrupt: {error}") from error

    @contextmanager
    def reading(self, file: str) -> Iterator[bytes]:
        """Yield the file's bytes to a block that decodes them."""
        path = self.path / file
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise DataError(f"there is no {path}") from error
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror or error}") from error
        with self.decoding(file):
            yield data

    @contextmanager
    def writing(self, file: str) -> Iterator[Path]:
        """Yield the file's path to a block that writes it."""
        path = self.path / file
        try:
            yield path
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror or error}") from error

    def write(self, file: str, data: bytes) -> Path:
        """Replace a file atomically."""
        with self.writing(file) as path:
            write_atomically(path, data)
        return path

    def write_json(self, file: str, content: Mapping[str, Any]) -> None:
        """Write a JSON object."""
        self.write(file, (json.dumps(plain(content), indent=2) + "\n").encode())

    def read_json(self, file: str, missing: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return a JSON object; ``missing`` if it is given and the file does not exist."""
        if missing is not None and not self.holds(file):
            return dict(missing)
        with self.reading(file) as data:
            content = from_json(data)
            if not isinstance(content, dict):
                raise ValueError("expected a JSON object")
            return content

    def write_lines(self, file: str, lines: list[str]) -> None:
        """Write lines of text."""
        self.write(file, "".join(f"{line}\n" for line in lines).encode())

    def append_text(self, file: str, text: str) -> None:
        """Append a text and a newline."""
        with self.writing(file) as path, path.open("a", encoding="utf-8") as stream:
            stream.write(f"{text}\n")

    def read_lines(self, file: str) -> list[str]:
        """Return the lines of a text."""
        with self.reading(file) as data:
            return decoded(data).splitlines()

    def write_arrays(self, file: str, arrays: Arrays) -> None:
        """Write arrays, compressed."""
        buffer = io.BytesIO()
        # NumPy 1 would store the argument allow_pickle as an array. Without it, the type checker
        # takes the arrays for that argument, hence Any.
        named: dict[str, Any] = dict(arrays)
        np.savez_compressed(buffer, **named)
        self.write(file, buffer.getvalue())

    @contextmanager
    def reading_arrays(self, file: str) -> Iterator[ArrayFile]:
        """Yield the arrays of a file, each read on access."""
        with open_arrays(self.path / file) as arrays, self.decoding(file):
            yield arrays


def plain(value: Any) -> Any:
    """Return a value in the types of TOML and JSON: no paths, tuples, NumPy arrays or scalars."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return str(value) if isinstance(value, PurePath) else value


def config_of(data: bytes) -> dict[str, Any]:
    """Return the configuration in the bytes of a run's file.

    Raises:
        ValueError: It is not TOML, or its rounds are not a number.
    """
    config: dict[str, Any] = {}
    for key, value in from_toml(data).items():
        config |= value if isinstance(value, Mapping) else {key: value}  # a section, or a key
    if not isinstance(rounds := config.get("rounds", 0), int):
        raise ValueError(f"rounds is {rounds!r}; expected a whole number")
    return config


def round_of(line: bytes) -> dict[str, Any]:
    """Return the entry of a round's line.

    Raises:
        ValueError: It is none.
    """
    entry = from_json(line)
    if not isinstance(entry, dict) or "round" not in entry:
        raise ValueError("expected a JSON object with the key 'round'")
    if not isinstance(entry.get("seconds", 0.0), int | float):
        raise ValueError(f"seconds is {entry['seconds']!r}; expected a number")
    return entry


_TEXT: Shapes = {"manifest": ()}


def _posterior_arrays(posterior: Posterior, manifest: Manifest) -> dict[str, npt.NDArray[Any]]:
    return {**posterior.vectors(), "manifest": np.array(manifest.to_json())}


@dataclass(frozen=True)
class RunFiles(Files):
    """The configuration and the arrays of a run; see ``Files`` for the errors."""

    def config(self) -> dict[str, Any]:
        """Return the configuration."""
        with self.reading(CONFIG) as data:
            return config_of(data)

    def write_posterior(self, posterior: Posterior, manifest: Manifest) -> None:
        """Write the global posterior with the manifest of its vectors."""
        self.write_arrays(POSTERIOR, _posterior_arrays(posterior, manifest))

    def write_best_posterior(
        self, posterior: Posterior, manifest: Manifest, metric: str, server_round: int, value: float
    ) -> None:
        """Write the posterior of the best round so far, by the value of a metric."""
        best = {"metric": metric, "round": server_round, "value": value}
        arrays = {name: np.array(value) for name, value in best.items()}
        self.write_arrays(BEST_POSTERIOR, {**_posterior_arrays(posterior, manifest), **arrays})

    def best(self) -> dict[str, Any]:
        """Return ``metric``, ``round`` and ``value`` of the best posterior."""
        with self.reading_arrays(BEST_POSTERIOR) as arrays:
            shapes: Shapes = dict.fromkeys(("metric", "round", "value"), ())
            return {name: a.item() for name, a in arrays.checked(shapes, shapes=shapes).items()}

    def posterior(self, file: str = POSTERIOR) -> tuple[Posterior, Manifest]:
        """Return the global posterior, or the best one, and the manifest of its vectors.

        Raises:
            DataError: The file is missing or corrupt, or its vectors do not fit the manifest or are
                not a posterior.
        """
        with self.reading_arrays(file) as arrays:
            try:
                text = str(arrays.checked(["manifest"], shapes=_TEXT)["manifest"])
                manifest = Manifest.from_json(text)
                gaussian, point = manifest.gaussian_size, manifest.point_size
            except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
                what = f"{type(error).__name__}: {error}"
                raise ValueError(f"its manifest is not valid: {what}") from error
            shapes = {"mean": (gaussian,), "variance": (gaussian,), "point": (point,)}
            posterior = Posterior(**arrays.checked(shapes, shapes=shapes))
            posterior.check()
            return posterior, manifest

    def write_predictions(self, predictions: Predictions, labels: npt.ArrayLike) -> None:
        """Write the predictions for the test examples in full precision, for later analyses.

        The arrays are ``labels`` (N,), ``mean_probability`` and ``log_mean_probability`` (N, C),
        ``predicted`` (N,), ``samples`` and each registered uncertainty (N,), by its name.
        """
        settings = self.config() if self.holds(CONFIG) else {}
        arrays = {
            "labels": np.asarray(labels, dtype=np.int64),
            "mean_probability": predictions.mean_probability,
            "log_mean_probability": predictions.log_mean_probability,
            "predicted": predictions.predicted,
            "samples": np.array(predictions.samples),
            **measure_all(predictions, settings),
            **predictions.sets,
        }
        self.write_arrays(PREDICTIONS, arrays)

    def predictions(self) -> tuple[Predictions, IntArray]:
        """Return the predictions for the test examples and their labels (N,)."""
        with self.reading_arrays(PREDICTIONS) as arrays:
            of_classes = ("mean_probability", "log_mean_probability")
            shape = arrays.header(of_classes[0]).shape
            scores = [name for name in SCORES if name in arrays]
            of_examples = ("expected-entropy", "aleatoric", "epistemic", "labels", *scores)
            sets = [name for name in SETS if name in arrays]
            shapes = dict.fromkeys((*of_classes, *sets), shape)
            shapes |= dict.fromkeys(of_examples, shape[:1])
            found = arrays.checked([*shapes, "samples"], shapes={**shapes, "samples": ()})
            predictions = Predictions(
                mean_probability=found["mean_probability"],
                log_mean_probability=found["log_mean_probability"],
                expected_entropy=found["expected-entropy"],
                aleatoric=found["aleatoric"],
                epistemic=found["epistemic"],
                samples=int(found["samples"]),
                scores={name: found[name] for name in scores},
                sets={name: found[name].astype(np.bool_) for name in sets},
            )
            return predictions, found["labels"].astype(np.int64)
