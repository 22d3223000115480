"""The folder of one run: reading and writing of its files, which ``docs/running.md`` lists.

Besides these there are ``run-key``, ``run.lock``, ``checkpoints/`` with the last two states, and
``rounds-begun``, the private releases that have begun. Each file except ``rounds.jsonl`` is written
to a temporary file beside it and then renamed, so no reader sees half a file. Only their owner may
read them.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import socket
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tomli_w

from bfl import archives, files, texts
from bfl.archives import reason_of
from bfl.closing.conformal import SETS
from bfl.closing.feature_density import DENSITY
from bfl.errors import ConfigurationError, DataError, PosteriorError, RunError
from bfl.evaluation import regression
from bfl.evaluation.prediction.predictions import ENERGY, MAX_LOGIT, Predictions
from bfl.evaluation.uncertainty.base import measure_all
from bfl.experiments.results.environment import ENDED
from bfl.posteriors import Manifest
from bfl.posteriors.posterior import Posterior

CONFIG = "config.toml"
RUN = "run.json"
ROUNDS = "rounds.jsonl"
METRICS = "metrics.json"
PREDICTIONS = "predictions.npz"
PREDICTED_CLASSES = f"{PREDICTIONS}:labels"
PREDICTED_NUMBERS = f"{PREDICTIONS}:targets"
POSTERIOR = "posterior.npz"
CLOSING = "closing.npz"
REFUSALS = "refusals.txt"
FIGURES = "figures"
REPORT = "report.html"
FOR_NODES = "network.json"

ENVIRONMENT = f"{RUN}:environment"
GIVEN = f"{RUN}:given"
NETWORK = f"{RUN}:network"
DATA = f"{RUN}:data"
PARTITION = f"{RUN}:partition"
CLIENTS = f"{RUN}:clients"
BASELINES = f"{RUN}:baselines"
FOREIGN = f"{RUN}:foreign"
CORRUPTIONS = f"{RUN}:corruptions"
RETENTION = f"{RUN}:retention"
LEARNT = f"{RUN}:posterior"
ENSEMBLE = f"{RUN}:ensemble"
_WARNINGS = "warnings"

FINAL_RESULTS = (
    *(METRICS, PREDICTIONS, CLOSING, POSTERIOR),
    *(CLIENTS, BASELINES, FOREIGN, CORRUPTIONS, RETENTION, ENSEMBLE, LEARNT),
)
"""Final results of a run, without figures. The first one marks a finished run: it is removed first
and written last."""

FILES_OF_A_BEGUN_RUN = (CONFIG, ROUNDS, METRICS, PREDICTIONS, CLOSING, POSTERIOR)
"""Files that show that a run has begun; ``run.json`` is written before that."""

PER_CLIENT = "per-client"  # the key of a round's line that has one entry for each client

FINAL_EVALUATION = "final evaluation"  # prefix of warnings about the final posterior

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700

RUN_KEY, LOCK = "run-key", "run.lock"

WHOLE = "whole-sha256"
"""The key of the digest of a partition whose numbers a private run's folder leaves out."""

CORRUPT = (
    *(ValueError, KeyError, TypeError, AttributeError),
    *(EOFError, zipfile.BadZipFile, zlib.error),
)
"""Errors of NumPy, zip, JSON and TOML for truncated files and files of another format."""


@dataclass(frozen=True)
class Files:
    """The files of a folder, which somebody else may have made.

    ``run.json:network`` stands for a section of a file: an object in it, or an array of an archive.
    Readers raise a DataError that names the file if it is missing or corrupt, or no regular file;
    writers raise a RunError that names the file if it cannot be written.
    """

    path: Path

    def holds(self, file: str) -> bool:
        """Return whether the folder has a file, or a section of one."""
        name, _, section = file.partition(":")
        there = (self.path / name).is_file()
        if not section or not there:
            return there
        if name.endswith(".json"):
            return section in self.read_json(name)
        with self.reading_arrays(name) as arrays:
            return section in arrays

    @contextmanager
    def decoding(self, file: str) -> Iterator[None]:
        """Convert the errors of a corrupt file into a DataError that names it."""
        try:
            yield
        except (*CORRUPT, PosteriorError) as error:
            raise DataError(f"{self.path / file} is corrupt: {reason_of(error)}") from error

    @contextmanager
    def reading(self, file: str) -> Iterator[bytes]:
        """Yield the file's bytes to a block that decodes them."""
        path = self.path / file
        try:
            data = files.read_regular(path)
        except FileNotFoundError as error:
            raise DataError(f"there is no {path}") from error
        except OSError as error:
            raise DataError(f"cannot read {path}: {reason_of(error)}") from error
        with self.decoding(file):
            yield data

    @contextmanager
    def writing(self, file: str) -> Iterator[Path]:
        """Yield the file's path to a block that writes it."""
        try:
            yield self.path / file
        except OSError as error:
            raise RunError(f"cannot write {self.path / file}: {reason_of(error)}") from error

    def write(self, file: str, data: bytes) -> Path:
        """Replace a file atomically; make its folder if needed."""
        with self.writing(file) as path:
            self.path.mkdir(parents=True, exist_ok=True)
            for inner in reversed([*path.relative_to(self.path).parents][:-1]):
                files.private_folder(self.path / inner)
            files.write_atomically(path, data, mode=PRIVATE_FILE)
        return path

    def write_json(self, file: str, content: Mapping[str, Any]) -> None:
        """Write a JSON object as a file or a section of one."""
        name, _, section = file.partition(":")
        kept = {**self.read_json(name, {}), section: content} if section else content
        self.write(name, (json.dumps(plain(kept), indent=2) + "\n").encode())

    def read_json(self, file: str, missing: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return a JSON object of a file or section; ``missing`` if it is given and that is."""
        name, _, section = file.partition(":")
        if missing is not None and not self.holds(file):
            return dict(missing)
        with self.reading(name) as data:
            content = _json_object(texts.from_json(data))
        if section and section not in content:
            raise DataError(f"there is no {section} in {self.path / name}")
        with self.decoding(file):
            return _json_object(content[section]) if section else content

    def append_text(self, file: str, text: str) -> None:
        """Append a text and a newline."""
        with self.writing(file) as path, _open_to_append(path) as stream:
            stream.write(f"{text}\n".encode())

    def write_arrays(self, file: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write arrays, compressed."""
        buffer = io.BytesIO()
        named: dict[str, Any] = dict(arrays)  # or the arrays would be taken for allow_pickle
        np.savez_compressed(buffer, **named)
        self.write(file, buffer.getvalue())

    def add_arrays(self, file: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add arrays to a file, which has others."""
        with self.reading_arrays(file) as held:
            before = dict(held)
        self.write_arrays(file, before | dict(arrays))

    @contextmanager
    def reading_arrays(self, file: str) -> Iterator[archives.ArrayFile]:
        """Yield the arrays of a file, each read on access."""
        with archives.open_arrays(self.path / file) as held, self.decoding(file):
            yield held


def _open_to_append(path: Path) -> io.BufferedWriter:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    return os.fdopen(os.open(path, flags, PRIVATE_FILE), "ab")


def _json_object(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError("expected a JSON object")
    return content


def plain(value: Any) -> Any:
    """Return a value in the types of TOML and JSON: no paths, tuples, NumPy arrays or scalars."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return str(value) if isinstance(value, os.PathLike) else value


def config_of(data: bytes) -> dict[str, Any]:
    """Return the configuration in the bytes of a run's file; ValueError where it is none."""
    config: dict[str, Any] = {}
    for key, value in texts.from_toml(data).items():
        config |= value if isinstance(value, Mapping) else {key: value}  # a section, or a key
    if not isinstance(rounds := config.get("rounds", 0), int):
        raise ValueError(f"rounds is {rounds!r}; expected a whole number")
    return config


@dataclass(frozen=True)
class RunFolder(Files):
    """The folder of one run; see ``Files`` for the errors of reading and writing."""

    @classmethod
    def create(
        cls,
        output_dir: str | os.PathLike[str],
        name: str,
        config: Mapping[str, Any],
        environment: Mapping[str, Any],
        given: Mapping[str, Any] | None = None,
    ) -> RunFolder:
        """Make the folder of a new run and write its configuration and environment.

        The configuration is written last, and makes the folder a run's. If the process is killed
        before, the same run can begin in the folder. For ``environment`` see
        ``describe_environment``; ``given`` is what of the configuration was given.

        Raises:
            ConfigurationError: The name is not valid for a folder, the folder holds another run, or
                it cannot be written.
        """
        folder = cls.named(output_dir, name)
        path = folder.path
        try:
            path.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
            if any((path / file).exists() for file in FILES_OF_A_BEGUN_RUN):
                raise ConfigurationError(
                    f"{path} holds another run; choose another name, or overwrite it"
                )
            folder.write_json(RUN, {"environment": environment, "given": given or {}})
            # Last: a run has begun whose configuration is there.
            folder.write(CONFIG, _as_toml(config))
        except (OSError, RunError) as error:
            raise ConfigurationError(f"cannot write {path}: {reason_of(error)}") from error
        return folder

    @classmethod
    def at(cls, path: Path) -> RunFolder:
        """Return the folder of a run that is there; DataError for none."""
        folder = cls(path)
        if not folder.holds(CONFIG):
            beside, below = (path.parent.glob(f"{near}/{CONFIG}") for near in ("*", "runs/*"))
            found = [file.parent for file in (*beside, *below)]
            raise DataError(
                f"{path} is not the folder of a run: it has no file {CONFIG}"
                f"{files.near_path(path, found)}"
            )
        return folder

    @classmethod
    def named(cls, output_dir: str | os.PathLike[str], name: str) -> RunFolder:
        """Return the folder of a run, which need not exist; ConfigurationError for no name."""
        if problem := files.folder_name_problem(name):
            raise ConfigurationError(f"run name '{name}' is not the name of a folder: {problem}")
        return cls(Path(output_dir) / name)

    def append_warning(self, text: str) -> None:
        """Add a warning, unless a resumed run has it already."""
        if text not in (known := self.warnings()):
            self.write_json(RUN, {**self.read_json(RUN, {}), _WARNINGS: [*known, text]})

    def warnings(self) -> list[str]:
        """Return the warnings, a line each."""
        return list(map(str, self.read_json(RUN, {}).get(_WARNINGS, [])))

    def config(self, missing: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the configuration; ``missing`` if it is given and the folder has none."""
        if missing is not None and not self.holds(CONFIG):
            return dict(missing)
        with self.reading(CONFIG) as data:
            return config_of(data)

    def class_names(self) -> tuple[str, ...]:
        """Return the names of the classes; empty if the run has not recorded them."""
        content = self.read_json(NETWORK, {"class-names": ()})
        with self.decoding(NETWORK):
            return tuple(map(str, content["class-names"]))

    def client_names(self) -> tuple[str, ...]:
        """Return the names of the clients, such as their sites; empty if they have none."""
        content = self.read_json(PARTITION, {})
        with self.decoding(PARTITION):
            return tuple(map(str, content.get("names", ())))

    def reconfigure(self, config: Mapping[str, Any]) -> None:
        """Write a configuration with other rounds or another end; drop the final results."""
        # Results first: if the process is killed between, new rounds with old results would look
        # like a finished run.
        self._drop_final_results()
        if config.get("rounds") != self.config().get("rounds"):
            known = self.read_json(ENVIRONMENT, {})
            self.write_json(ENVIRONMENT, {k: v for k, v in known.items() if k != ENDED})
        self.write(CONFIG, _as_toml(config))

    def _drop_final_results(self) -> None:
        sections = {name.partition(":")[2] for name in FINAL_RESULTS}
        with self.writing(METRICS):
            for name in (*(name for name in FINAL_RESULTS if ":" not in name), REPORT):
                (self.path / name).unlink(missing_ok=True)
            if not (figures := self.path / FIGURES).is_symlink():
                for figure in figures.glob("*.*"):
                    figure.unlink()
        before = self.read_json(RUN, {})
        kept = {name: content for name, content in before.items() if name not in sections}
        if warnings := self.warnings():
            kept[_WARNINGS] = [text for text in warnings if not text.startswith(FINAL_EVALUATION)]
        if kept != before:
            self.write_json(RUN, kept)

    def write_metrics(self, metrics: Mapping[str, float]) -> None:
        """Write the final metrics, which mark the run as finished."""
        self.write_json(METRICS, metrics)

    def metrics(self) -> dict[str, float]:
        """Return the final metrics."""
        self.check_finished(METRICS)
        return self.read_json(METRICS)

    def check_finished(self, file: str) -> None:
        """Raise DataError where a file of a run's end is missing, with what ends the run."""
        if self.holds(file):
            return
        made, config = (self.rounds() or [{"round": 0}])[-1]["round"], self.config({})
        planned = f" of {config['rounds']}" if "rounds" in config else ""
        plugins = (
            f" --run-config 'plugins=\"{config['plugins']}\"'" if config.get("plugins") else ""
        )
        end = f', end it there with --run-config rounds={made}, or take the posterior "latest"'
        raise DataError(
            f"{self.path} has no {file}: the run stands at round {made}{planned}, and has not come "
            f"to its end; go on with it by bfl run --resume {self.path}{plugins}"
            f"{end if made else ''}"
        )

    def append_round(self, entry: Mapping[str, Any]) -> None:
        """Append one round's line, and flush it to the disk.

        A torn last line, of a process that was killed while writing, is cut off first.
        """
        whole = sum(map(len, self._lines_of_rounds()))
        with self.writing(ROUNDS) as path:
            with _open_to_append(path) as stream:
                stream.truncate(whole)
                stream.write(_line_of(entry))
                stream.flush()
                os.fsync(stream.fileno())
            files.sync_folder(self.path)

    def rounds(self) -> list[dict[str, Any]]:
        """Return the rounds in the file's order, without a torn last line."""
        entries = []
        for number, line in enumerate(self._lines_of_rounds(), start=1):
            with self.decoding(f"{ROUNDS}, line {number},"):
                entry = _json_object(texts.from_json(line))
                if not isinstance(entry["round"], int):
                    raise ValueError(f"round is {entry['round']!r}; expected a whole number")
                if not isinstance(entry.get("seconds", 0.0), int | float):
                    raise ValueError(f"seconds is {entry['seconds']!r}; expected a number")
                entries.append(entry)
        return entries

    def _lines_of_rounds(self) -> list[bytes]:
        if not os.path.lexists(self.path / ROUNDS):
            return []
        with self.reading(ROUNDS) as data:
            return data[: data.rfind(b"\n") + 1].splitlines(keepends=True)

    def keep_rounds(self, last: int) -> None:
        """Drop the rounds after ``last``, which will be repeated, and before them final results."""
        rounds = self.rounds()
        if any(entry["round"] > last for entry in rounds):
            self._drop_final_results()
        self.write_rounds([entry for entry in rounds if entry["round"] <= last])

    def write_rounds(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Replace the lines of all rounds."""
        self.write(ROUNDS, b"".join(map(_line_of, entries)))

    def write_posterior(self, posterior: Posterior, manifest: Manifest) -> None:
        """Write the global posterior, and the manifest of its vectors."""
        named = {**posterior.vectors(), "manifest": np.array(manifest.to_json())}
        self.write_arrays(POSTERIOR, named)

    def posterior(self, file: str = POSTERIOR) -> tuple[Posterior, Manifest]:
        """Return the global posterior, or that of another file, and its vectors' manifest."""
        with self.reading_arrays(file) as arrays:
            try:
                text = str(arrays.checked(["manifest"], {"manifest": ()})["manifest"])
                manifest = Manifest.from_json(text)
                gaussian, point = manifest.gaussian_size, manifest.point_size
            except (*CORRUPT, RecursionError) as error:
                what = f"{type(error).__name__}: {error}"
                raise ValueError(f"its manifest is not valid: {what}") from error
            shapes = {"mean": (gaussian,), "variance": (gaussian,), "point": (point,)}
            posterior = Posterior(**arrays.checked(shapes, shapes))
            posterior.check()
            return posterior, manifest

    def write_predictions(self, predictions: Predictions, labels: npt.ArrayLike) -> None:
        """Write the predictions for the test examples (N) and each registered uncertainty (N,)."""
        arrays = {
            "labels": np.asarray(labels, dtype=np.int64),
            "mean_probability": predictions.mean_probability,
            "log_mean_probability": predictions.log_mean_probability,
            "predicted": predictions.predicted,
            "samples": np.array(predictions.samples),
            **measure_all(predictions, self.config({})),
            **predictions.sets,
        }
        if predictions.familiarity is not None:
            arrays[regression.FAMILIARITY] = predictions.familiarity
        self.write_arrays(PREDICTIONS, arrays)

    def predictions(self) -> tuple[Predictions, npt.NDArray[np.int64]]:
        """Return the predictions for the test examples and their labels (N,)."""
        with self.reading_arrays(PREDICTIONS) as arrays:
            of_classes = ("mean_probability", "log_mean_probability")
            shape = arrays[of_classes[0]].shape
            scores = [name for name in (ENERGY, MAX_LOGIT, DENSITY) if name in arrays]
            of_examples = ("expected-entropy", "aleatoric", "epistemic", "labels", *scores)
            of_examples += (regression.FAMILIARITY,) if regression.FAMILIARITY in arrays else ()
            sets = [name for name in SETS if name in arrays]
            shapes = dict.fromkeys((*of_classes, *sets), shape)
            shapes |= dict.fromkeys(of_examples, shape[:1])
            shapes["samples"] = ()
            found = arrays.checked(shapes, shapes)
            predictions = Predictions(
                mean_probability=found["mean_probability"],
                log_mean_probability=found["log_mean_probability"],
                expected_entropy=found["expected-entropy"],
                aleatoric=found["aleatoric"],
                epistemic=found["epistemic"],
                samples=int(found["samples"]),
                scores={name: found[name] for name in scores},
                sets={name: found[name].astype(np.bool_) for name in sets},
                familiarity=found.get(regression.FAMILIARITY),
            )
            return predictions, found["labels"].astype(np.int64)

    def predicted_numbers(self) -> tuple[regression.Mixtures, npt.NDArray[np.float64]]:
        """Return the predictions of a regression for the test examples and their targets (N,)."""
        with self.reading_arrays(PREDICTIONS) as arrays:
            of_closing = {regression.FAMILIARITY, regression.INTERVAL} & arrays.keys()
            rows = arrays["targets"].shape
            found = arrays.checked(
                ("means", "variances", "targets", *of_closing),
                {"targets": rows, regression.FAMILIARITY: rows, regression.INTERVAL: ()},
            )
            interval = float(found[regression.INTERVAL]) if regression.INTERVAL in found else None
            predictions = regression.Mixtures(
                found["means"], found["variances"], interval, found.get(regression.FAMILIARITY)
            )
            return predictions, found["targets"]


def _as_toml(config: Mapping[str, Any]) -> bytes:
    return tomli_w.dumps({k: v for k, v in plain(config).items() if v is not None}).encode()


def _line_of(entry: Mapping[str, Any]) -> bytes:
    return (json.dumps(plain(entry)) + "\n").encode()


def run_key(folder: Path) -> str:
    """Return the random key of the run in a folder, created at the first call.

    Nodes store their state of a run under it: a resumed run keeps its key, and a new run of the
    same name gets another one.
    """
    with Files(folder).writing(RUN_KEY) as path:
        if not path.exists():
            files.write_atomically(path, f"{os.urandom(16).hex()}\n".encode(), mode=PRIVATE_FILE)
    if (key := read_run_key(folder)) is None:
        raise DataError(f"{path} is corrupt: expected 32 hexadecimal digits")
    return key


def read_run_key(folder: Path) -> str | None:
    """Return the key of the run in a folder; None without a key or a folder."""
    try:
        key = files.read_regular(folder / RUN_KEY).decode("ascii").strip()
    except (OSError, ValueError):
        return None
    return key if is_run_key(key) else None


def is_run_key(text: str) -> bool:
    """Return whether a text is the key of a run: 32 hexadecimal digits, a safe file name."""
    return len(text) == 32 and not set(text) - set("0123456789abcdef")


@contextmanager
def locked(folder: Path, who: str = "another server writes to") -> Iterator[None]:
    """Lock a run's folder, which is made, against other servers, of this machine or another one.

    A killed server releases the lock. ConfigurationError if another server has it, which is named.
    """
    path = folder / LOCK
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Not through a link, which may lead to a file of somebody else's.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        stream = os.fdopen(os.open(path, flags, 0o600), "a+", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"cannot write the run folder {folder}: {error.strerror or error}"
        ) from error
    with stream:
        if not files.try_lock(stream):
            stream.seek(0)
            raise ConfigurationError(
                f"{who} {folder}: {stream.read().strip() or 'unknown'}; wait "
                "for its end, or end it, or choose another name"
            )
        stream.truncate(0)
        stream.write(f"process {os.getpid()} on host {socket.gethostname()}\n")
        stream.flush()
        yield


def without_numbers(partition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a private run's partition without clients' numbers, but with one digest of them."""
    kept = {key: partition[key] for key in ("sha256", "server") if key in partition}
    return {**kept, WHOLE: partition_digest(partition)}


def partition_digest(partition: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a partition's description, independent of the order of its keys."""
    text = json.dumps(partition, sort_keys=True, separators=(",", ":"))
    return str(partition.get(WHOLE) or hashlib.sha256(text.encode()).hexdigest())


def is_written_to(folder: Path) -> bool:
    """Return whether a process holds the lock of a run's folder; False if that is unknown."""
    try:
        with (folder / LOCK).open("rb") as stream:
            return not files.try_lock(stream, shared=True)
    except OSError:  # no such file
        return False
