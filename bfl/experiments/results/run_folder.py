"""The files that one run leaves behind.

| file | content |
| --- | --- |
| ``config.toml`` | the complete configuration |
| ``environment.json`` | versions, machine, commit |
| ``network.json`` | what predicting with the posterior takes besides: images, classes, network |
| ``run-key``, ``run.lock`` | which run this is, and who writes here: see ``identity`` |
| ``partition.json`` | who holds which data |
| ``rounds.jsonl`` | one line per round, appended as the round ends |
| ``warnings.txt`` | what the results do not show by themselves, a line each; only if there is any |
| ``posterior.npz`` | the global posterior: mean, variance, point, manifest |
| ``best-posterior.npz`` | that of the best round so far, with the round, and metric and value |
| ``predictions.npz`` | labels, mean probabilities and uncertainties of the test examples |
| ``metrics.json`` | metrics, mean uncertainties and retention areas |
| ``clients.json`` | how each client's models do on its own test data; where clients judge |
| ``retention.json`` | retention curves on a grid of percents, with their areas |
| ``ensemble.json`` | retention curves of an ensemble (``predictive``), accuracies of its members |
| ``examples.npz`` | the test images that are predicted with the most and the least certainty |
| ``figures/`` | PNG files |

Every file but ``rounds.jsonl`` is written to a temporary file beside it and then renamed, so a
reader (or a run that is killed) never meets half a file.
"""

from __future__ import annotations

import io
import json
import os
import tomllib
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import numpy.typing as npt
import tomli_w

from bfl.errors import ConfigurationError, DataError, PosteriorError, RunError
from bfl.evaluation.prediction.predictions import IntArray, Predictions
from bfl.evaluation.uncertainty.base import measure_all
from bfl.files import create_atomically, folder_name_problem, sync_folder, write_atomically
from bfl.posteriors.manifest import Manifest
from bfl.posteriors.posterior import VECTORS, Posterior

CONFIG = "config.toml"
ENVIRONMENT = "environment.json"
NETWORK = "network.json"
PARTITION = "partition.json"
ROUNDS = "rounds.jsonl"
WARNINGS = "warnings.txt"
POSTERIOR = "posterior.npz"
BEST_POSTERIOR = "best-posterior.npz"
PREDICTIONS = "predictions.npz"
METRICS = "metrics.json"
CLIENTS = "clients.json"
RETENTION = "retention.json"
ENSEMBLE = "ensemble.json"
EXAMPLES = "examples.npz"
FIGURES = "figures"

PER_CLIENT = "per-client"
"""The key of a round's line that has one entry for each client."""

_RUN_FILES = (
    CONFIG,
    ENVIRONMENT,
    NETWORK,
    PARTITION,
    ROUNDS,
    POSTERIOR,
    BEST_POSTERIOR,
    PREDICTIONS,
    METRICS,
    CLIENTS,
    RETENTION,
    ENSEMBLE,
    EXAMPLES,
)
# What NumPy, zip, JSON and TOML raise when a file is cut off or of another kind.
_CORRUPT = (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run.

    Readers raise DataError, naming the file, when it is missing or not what it should be; writers
    raise RunError, naming the file, when it cannot be written.

    Attributes:
        path: The folder.
    """

    path: Path

    @classmethod
    def create(
        cls,
        output_dir: str | os.PathLike[str],
        name: str,
        config: Mapping[str, Any],
        environment: Mapping[str, Any],
    ) -> RunFolder:
        """Make the folder of a new run and write its configuration and environment.

        Args:
            output_dir: The folder of all runs; it is made when it does not exist.
            name: The run's name, which is its folder below ``output_dir``.
            config: The complete configuration; settings that are None are left out, as TOML has
                no null.
            environment: See ``describe_environment``.

        Raises:
            ConfigurationError: The name is not that of one folder, the folder holds another run, or
                it cannot be written.
        """
        folder = cls.named(output_dir, name)
        path = folder.path
        try:
            path.mkdir(parents=True, exist_ok=True)
            folder._claim(config)
            folder.write_environment(environment)
        except OSError as error:
            raise ConfigurationError(
                f"cannot write the run folder {path}: {error.strerror or error}"
            ) from error
        except RunError as error:
            raise ConfigurationError(str(error)) from error
        return folder

    @classmethod
    def named(cls, output_dir: str | os.PathLike[str], name: str) -> RunFolder:
        """Return the folder that a run of some name has, whether it is there or not.

        Raises:
            ConfigurationError: The name is not that of one folder.
        """
        problem = folder_name_problem(name)
        if problem:
            raise ConfigurationError(f"run name '{name}' is not the name of a folder: {problem}")
        return cls(Path(output_dir) / name)

    def _claim(self, config: Mapping[str, Any]) -> None:
        """Write the configuration into a folder that holds no run yet.

        Of two runs that start at once under one name only one gets the folder, and a run that is
        killed meanwhile leaves the whole file or none.
        """
        text = tomli_w.dumps({k: v for k, v in _plain(config).items() if v is not None})
        taken = f"{self.path} holds another run; choose another name or remove that folder"
        if any((self.path / file).exists() for file in _RUN_FILES):
            raise ConfigurationError(taken)
        try:
            create_atomically(self.path / CONFIG, text.encode())
        except FileExistsError as error:
            raise ConfigurationError(taken) from error

    # Small files -------------------------------------------------------------------------------

    def config(self) -> dict[str, Any]:
        """Return the configuration."""
        with self._reading(CONFIG) as data:
            return tomllib.loads(data.decode())

    def add_rounds(self, rounds: int) -> None:
        """Give the run more rounds; its final results, of fewer, are removed.

        Raises:
            RunError: A file cannot be written or removed.
        """
        text = tomli_w.dumps({**self.config(), "rounds": rounds})
        with self._writing(CONFIG):
            # The configuration last: a run killed here is to be given more rounds again. With the
            # new one beside the old results it would pass for a finished run of as many.
            for name in (METRICS, PREDICTIONS, RETENTION, ENSEMBLE, EXAMPLES, POSTERIOR):
                (self.path / name).unlink(missing_ok=True)
            for figure in (self.path / FIGURES).glob("*.png"):
                figure.unlink()
            write_atomically(self.path / CONFIG, text.encode())

    def write_environment(self, environment: Mapping[str, Any]) -> None:
        """Write the environment, see ``describe_environment``."""
        self._write_json(ENVIRONMENT, environment)

    def environment(self) -> dict[str, Any]:
        """Return the environment."""
        return self._read_json(ENVIRONMENT)

    def write_network(self, description: Mapping[str, Any]) -> None:
        """Write what predicting takes besides the posterior, see ``results.network``."""
        self._write_json(NETWORK, description)

    def network(self) -> dict[str, Any]:
        """Return what predicting takes besides the posterior."""
        return self._read_json(NETWORK)

    def write_partition(self, partition: Mapping[str, Any]) -> None:
        """Write who holds which data."""
        self._write_json(PARTITION, partition)

    def partition(self) -> dict[str, Any]:
        """Return who holds which data."""
        return self._read_json(PARTITION)

    def write_metrics(self, metrics: Mapping[str, float]) -> None:
        """Write the final metrics, see ``bfl.experiments.results.summary``."""
        self._write_json(METRICS, metrics)

    def metrics(self) -> dict[str, float]:
        """Return the final metrics."""
        return self._read_json(METRICS)

    def write_clients(self, table: Mapping[str, Any]) -> None:
        """Write how clients' models do, see ``bfl.experiments.results.judged_clients``."""
        self._write_json(CLIENTS, table)

    def clients(self) -> dict[str, Any]:
        """Return how clients' models do on their own test data."""
        return self._read_json(CLIENTS)

    def write_retention(self, curves: Mapping[str, Any]) -> None:
        """Write the retention curves, see ``bfl.experiments.results.summary``."""
        self._write_json(RETENTION, curves)

    def retention(self) -> dict[str, Any]:
        """Return the retention curves."""
        return self._read_json(RETENTION)

    def write_ensemble(self, ensemble: Mapping[str, Any]) -> None:
        """Write what an ensemble's members and its retention are, see ``results.summary``."""
        self._write_json(ENSEMBLE, ensemble)

    def ensemble(self) -> dict[str, Any]:
        """Return what ``write_ensemble`` has written."""
        return self._read_json(ENSEMBLE)

    # Rounds ------------------------------------------------------------------------------------

    def append_round(self, entry: Mapping[str, Any]) -> None:
        """Append one round's line, on the disk when this returns.

        A torn last line, of a run that was killed while it wrote, is cut off first: appended to, it
        would spoil the new line as well.

        Args:
            entry: ``{"round": 3, "seconds": 4.2, "clients": 10, "accuracy": ..., ...}``. NaN and
                infinity are written as Python's json writes them.

        Raises:
            DataError: An earlier line is corrupt.
            RunError: The file cannot be written.
        """
        line = (json.dumps(_plain(entry)) + "\n").encode()
        kept, _ = self._whole_rounds()
        with self._writing(ROUNDS) as path:
            created = not path.exists()
            with path.open("ab") as stream:
                stream.truncate(len(kept))
                if kept and not kept.endswith(b"\n"):
                    line = b"\n" + line
                stream.write(line)
                stream.flush()
                os.fsync(stream.fileno())
            if created:
                sync_folder(self.path)

    def rounds(self) -> list[dict[str, Any]]:
        """Return the rounds in the order of the file; none when there is no file yet.

        A torn last line is left out.

        Raises:
            DataError: Another line than the last is corrupt.
        """
        return self._whole_rounds()[1]

    def keep_rounds(self, last: int) -> None:
        """Drop the rounds after ``last``: a run resumed from its checkpoint makes them again.

        Args:
            last: The last round to keep; 0 keeps none.
        """
        lines = [json.dumps(entry) + "\n" for entry in self.rounds() if entry["round"] <= last]
        self._write(ROUNDS, "".join(lines).encode())

    def _whole_rounds(self) -> tuple[bytes, list[dict[str, Any]]]:
        """Return the file up to its last whole line, and the entries of its lines."""
        path = self.path / ROUNDS
        try:
            lines = path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return b"", []
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror or error}") from error
        entries: list[dict[str, Any]] = []
        for number, line in enumerate(lines, start=1):
            try:
                entries.append(_round_entry(line))
            except _CORRUPT as error:
                if number == len(lines):
                    lines.pop()
                    break
                raise DataError(f"{path}, line {number}: not a round ({error})") from error
        return b"".join(lines), entries

    # Warnings ----------------------------------------------------------------------------------

    def append_warning(self, text: str) -> None:
        """Add a line to the warnings.

        Raises:
            RunError: The file cannot be written.
        """
        self._write(WARNINGS, "".join(f"{line}\n" for line in [*self.warnings(), text]).encode())

    def warnings(self) -> list[str]:
        """Return the warnings, a line each; none when there is no file."""
        if not self.holds(WARNINGS):
            return []
        with self._reading(WARNINGS) as data:
            return data.decode().splitlines()

    # Arrays ------------------------------------------------------------------------------------

    def write_posterior(self, posterior: Posterior, manifest: Manifest) -> None:
        """Write the global posterior with the manifest of its vectors.

        Raises:
            RunError: The file cannot be written.
        """
        self._write_arrays(POSTERIOR, **_posterior_arrays(posterior, manifest))

    def write_best_posterior(
        self, posterior: Posterior, manifest: Manifest, metric: str, server_round: int, value: float
    ) -> None:
        """Write the posterior of the best round so far, by the value of a metric.

        Raises:
            RunError: The file cannot be written.
        """
        self._write_arrays(
            BEST_POSTERIOR,
            **_posterior_arrays(posterior, manifest),
            metric=np.array(metric),
            round=np.array(server_round),
            value=np.array(value),
        )

    def best(self) -> dict[str, Any]:
        """Return of which round the best posterior is: ``metric``, ``round`` and ``value``.

        Raises:
            DataError: The file is missing or corrupt.
        """
        arrays = self._read_arrays(BEST_POSTERIOR)
        with self._decoding(BEST_POSTERIOR):
            return {name: arrays[name].item() for name in ("metric", "round", "value")}

    def posterior(self, file: str = POSTERIOR) -> tuple[Posterior, Manifest]:
        """Return the global posterior, or the best one, and the manifest of its vectors.

        Raises:
            DataError: The file is missing or corrupt, the vectors do not fit the manifest, or they
                are no posterior.
        """
        arrays = self._read_arrays(file)
        with self._decoding(file):
            manifest = Manifest.from_json(str(arrays["manifest"]))
            posterior = Posterior(arrays["mean"], arrays["variance"], arrays["point"])
            posterior.check()
            if (posterior.size, posterior.point.size) != (
                manifest.gaussian_size,
                manifest.point_size,
            ):
                raise ValueError("the vectors do not fit the manifest")
        return posterior, manifest

    def write_predictions(self, predictions: Predictions, labels: npt.ArrayLike) -> None:
        """Write the predictions for the test examples in full precision, for later analyses.

        The arrays are ``labels`` (N,), ``mean_probability`` and ``log_mean_probability`` (N, C),
        ``predicted`` (N,), ``samples`` and one (N,) of each registered uncertainty, under its name.

        Raises:
            RunError: The file cannot be written.
        """
        settings = self.config() if self.holds(CONFIG) else {}
        self._write_arrays(
            PREDICTIONS,
            labels=np.asarray(labels, dtype=np.int64),
            mean_probability=predictions.mean_probability,
            log_mean_probability=predictions.log_mean_probability,
            predicted=predictions.predicted,
            samples=np.array(predictions.samples),
            **measure_all(predictions, settings),
        )

    def predictions(self) -> tuple[Predictions, IntArray]:
        """Return the predictions for the test examples and their labels (N,).

        Raises:
            DataError: The file is missing or corrupt.
        """
        arrays = self._read_arrays(PREDICTIONS)
        if "mean_probability" in arrays and "log_mean_probability" not in arrays:
            raise DataError(
                f"{self.path / PREDICTIONS} has no log_mean_probability: an earlier version of bfl "
                "has written it, with entropies in nats; run it again"
            )
        with self._decoding(PREDICTIONS):
            predictions = Predictions(
                mean_probability=arrays["mean_probability"],
                log_mean_probability=arrays["log_mean_probability"],
                expected_entropy=arrays["expected-entropy"],
                aleatoric=arrays["aleatoric"],
                epistemic=arrays["epistemic"],
                samples=int(arrays["samples"]),
            )
            labels: IntArray = arrays["labels"].astype(np.int64)
            if labels.shape != (predictions.examples,):
                raise ValueError(f"labels have shape {labels.shape}")
        return predictions, labels

    def write_examples(self, **arrays: npt.NDArray[Any]) -> None:
        """Write some test images with what is predicted for them, see ``results.examples``.

        Raises:
            RunError: The file cannot be written.
        """
        self._write_arrays(EXAMPLES, **arrays)

    def examples(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays that ``write_examples`` has written.

        Raises:
            DataError: The file is missing or corrupt.
        """
        return self._read_arrays(EXAMPLES)

    # Figures -----------------------------------------------------------------------------------

    def write_figure(self, name: str, image: bytes) -> Path:
        """Write a PNG into ``figures/`` and return its path.

        Raises:
            RunError: The file cannot be written.
        """
        with self._writing(FIGURES) as path:
            path.mkdir(exist_ok=True)
        file = f"{FIGURES}/{name}.png"
        self._write(file, image)
        return self.path / file

    def holds(self, file: str) -> bool:
        """Return whether the run has left a file of that name (``metrics.json``, ...)."""
        return (self.path / file).is_file()

    # Reading and writing -----------------------------------------------------------------------

    @contextmanager
    def _decoding(self, file: str) -> Iterator[None]:
        """Turn what a corrupt file raises into a DataError that names it."""
        try:
            yield
        except (*_CORRUPT, PosteriorError) as error:
            raise DataError(f"{self.path / file} is corrupt: {error}") from error

    @contextmanager
    def _reading(self, file: str) -> Iterator[bytes]:
        """Give the file's bytes to a block that decodes them."""
        path = self.path / file
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise DataError(f"there is no {path}") from error
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror or error}") from error
        with self._decoding(file):
            yield data

    @contextmanager
    def _writing(self, file: str) -> Iterator[Path]:
        """Give the file's path to a block that writes it."""
        path = self.path / file
        try:
            yield path
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror or error}") from error

    def _write(self, file: str, data: bytes) -> None:
        """Replace a file as a whole: whoever reads it meets the old one or the new one."""
        with self._writing(file) as path:
            write_atomically(path, data)

    def _write_json(self, file: str, content: Mapping[str, Any]) -> None:
        self._write(file, (json.dumps(_plain(content), indent=2) + "\n").encode())

    def _read_json(self, file: str) -> dict[str, Any]:
        with self._reading(file) as data:
            content = json.loads(data)
            if not isinstance(content, dict):
                raise ValueError("expected a JSON object")
            return content

    def _write_arrays(self, file: str, **arrays: npt.NDArray[Any]) -> None:
        buffer = io.BytesIO()
        # NumPy 1 has no parameter allow_pickle here and would store it as one more array, so the
        # arrays go through Any, past the type checker, which takes them for that parameter.
        named: dict[str, Any] = arrays
        np.savez_compressed(buffer, **named)
        self._write(file, buffer.getvalue())

    def _read_arrays(self, file: str) -> dict[str, npt.NDArray[Any]]:
        with (
            self._reading(file) as data,
            np.load(io.BytesIO(data), allow_pickle=False) as archive,
        ):
            return {name: archive[name] for name in archive.files}


def _posterior_arrays(posterior: Posterior, manifest: Manifest) -> dict[str, npt.NDArray[Any]]:
    vectors = {name: getattr(posterior, name) for name in VECTORS}
    return {**vectors, "manifest": np.array(manifest.to_json())}


def _round_entry(line: bytes) -> dict[str, Any]:
    """Return the entry of one line of ``rounds.jsonl``."""
    entry = json.loads(line)
    if not isinstance(entry, dict) or "round" not in entry:
        raise ValueError("expected a JSON object with the key 'round'")
    return entry


def _plain(value: Any) -> Any:
    """Return a value in the types of TOML and JSON: no paths, tuples, NumPy arrays or scalars."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    return str(value) if isinstance(value, PurePath) else value
