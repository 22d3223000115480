"""The folder of one run: reading and writing of its files.

| file | content |
| --- | --- |
| ``config.toml`` | the complete configuration |
| ``given.toml`` | what of it was given; the rest is the strategy's, or default |
| ``environment.json`` | versions, machine, commit, start and end |
| ``network.json`` | what predicting with the posterior takes besides: images, classes, network |
| ``run-key``, ``run.lock`` | which run this is, and who writes here: see ``identity`` |
| ``partition.json`` | who holds which data |
| ``data.json`` | which data these are: digests of those that lie where the server does |
| ``rounds-begun`` | the rounds begun, where each is a private release of its own |
| ``sums-begun`` | the rounds of a closing's noised sums begun, where training is private |
| ``rounds.jsonl`` | one line per round, appended as the round ends |
| ``warnings.txt`` | what the results do not show by themselves, a line each; only if there is any |
| ``refusals.txt`` | which client failed or was refused in which round, and why; if any |
| ``posterior.npz`` | the global posterior: mean, variance, point, manifest |
| ``closing.npz`` | the result of the closing round: a last layer, a density of features, … |
| ``best-posterior.npz`` | the best round's posterior, with the round, and metric and value |
| ``predictions.npz`` | labels, mean probabilities and uncertainties of the test examples |
| ``regression.npz`` | in its place for regression: targets, means, variances |
| ``metrics.json`` | metrics, mean uncertainties and retention areas; written last |
| ``clients.json`` | metrics on each client's own test data, or its site's |
| ``foreign.json`` | detection of foreign images by each uncertainty (``ood-dataset``) |
| ``corruptions.json`` | metrics of corrupted test images by strength (``corruptions``) |
| ``retention.json`` | retention curves on a grid of percents, with their areas |
| ``ensemble.json`` | retention curves of an ensemble (``predictive``), its members |
| ``examples.npz`` | the test images with the most and the least certain predictions |
| ``figures/`` | PNG files |

Each file except ``rounds.jsonl`` is written to a temporary file beside it and then renamed, so no
reader sees half a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from bfl.errors import ConfigurationError, DataError, RunError
from bfl.experiments.results.files import BEST_POSTERIOR as BEST_POSTERIOR
from bfl.experiments.results.files import CONFIG as CONFIG
from bfl.experiments.results.files import CORRUPT, RunFiles, plain, round_of
from bfl.experiments.results.files import POSTERIOR as POSTERIOR
from bfl.experiments.results.files import PREDICTIONS as PREDICTIONS
from bfl.files import create_atomically, folder_name_problem, near_path, sync_folder

ROUNDS = "rounds.jsonl"
ENVIRONMENT = "environment.json"
NETWORK = "network.json"
PARTITION = "partition.json"
DATA = "data.json"
WARNINGS = "warnings.txt"
REFUSALS = "refusals.txt"
CLOSING = "closing.npz"
REGRESSION = "regression.npz"
METRICS = "metrics.json"
CLIENTS = "clients.json"
RETENTION = "retention.json"
ENSEMBLE = "ensemble.json"
EXAMPLES = "examples.npz"
FOREIGN = "foreign.json"
CORRUPTIONS = "corruptions.json"
FIGURES = "figures"

FINAL_RESULTS = (
    METRICS,
    PREDICTIONS,
    REGRESSION,
    RETENTION,
    ENSEMBLE,
    CLIENTS,
    EXAMPLES,
    FOREIGN,
    CORRUPTIONS,
    CLOSING,
    POSTERIOR,
)
"""Final results of a run, without figures. The first one marks a finished run: it is removed first
and written last."""

FILES_OF_A_BEGUN_RUN = (CONFIG, NETWORK, PARTITION, DATA, ROUNDS, BEST_POSTERIOR, *FINAL_RESULTS)
"""Files that show that a run has begun; its environment is written before that."""

PER_CLIENT = "per-client"
"""The key of a round's line that has one entry for each client."""

DEVIATIONS = "deviation-by-layer"
"""The key of a round's line with a standard deviation of each layer of Gaussian parameters."""

FINAL_EVALUATION = "final evaluation"
"""Prefix of warnings about the final posterior."""


@dataclass(frozen=True)
class RunFolder(RunFiles):
    """The folder of one run; see ``Files`` for the errors of reading and writing."""

    @classmethod
    def create(
        cls,
        output_dir: str | os.PathLike[str],
        name: str,
        config: Mapping[str, Any],
        environment: Mapping[str, Any],
        beside: Mapping[str, bytes] | None = None,
    ) -> RunFolder:
        """Make the folder of a new run and write its configuration and environment.

        The configuration is written last, and makes the folder a run's. If the process is killed
        before, the same run can begin in the folder.

        Args:
            output_dir: The folder of all runs, made if it does not exist.
            name: The run's name, which is its folder below ``output_dir``.
            config: The complete configuration; settings that are None are left out, as TOML has
                no null.
            environment: See ``describe_environment``.
            beside: Further files of the new run, by name.

        Raises:
            ConfigurationError: The name is not valid for a folder, the folder holds another run, or
                it cannot be written.
        """
        folder = cls.named(output_dir, name)
        path = folder.path
        try:
            path.mkdir(parents=True, exist_ok=True)
            folder._refuse_another_run()
            folder.write_json(ENVIRONMENT, environment)
            for file, data in (beside or {}).items():
                folder.write(file, data)
            folder._claim(config)
        except OSError as error:
            raise ConfigurationError(
                f"cannot write the run folder {path}: {error.strerror or error}"
            ) from error
        except RunError as error:
            raise ConfigurationError(str(error)) from error
        return folder

    @classmethod
    def at(cls, path: Path) -> RunFolder:
        """Return the folder of a run that is there.

        Raises:
            DataError: It is none; the message names the nearest one, beside it or in ``runs``.
        """
        if (folder := cls(path)).holds(CONFIG):
            return folder
        what = "it has no config.toml" if path.is_dir() else "there is no such folder"
        found = [f.parent for near in ("*", "runs/*") for f in path.parent.glob(f"{near}/{CONFIG}")]
        raise DataError(f"{path} is not the folder of a run: {what}{near_path(path, found)}")

    @classmethod
    def named(cls, output_dir: str | os.PathLike[str], name: str) -> RunFolder:
        """Return the folder of a run by its name, whether it exists or not.

        Raises:
            ConfigurationError: The name is not valid for a folder.
        """
        problem = folder_name_problem(name)
        if problem:
            raise ConfigurationError(f"run name '{name}' is not the name of a folder: {problem}")
        return cls(Path(output_dir) / name)

    def _refuse_another_run(self, reason: Exception | None = None) -> None:
        """Raise if the folder has a run, or files of one."""
        if reason or any((self.path / file).exists() for file in FILES_OF_A_BEGUN_RUN):
            raise ConfigurationError(
                f"{self.path} holds another run; choose another name, or overwrite it"
            ) from reason

    def _claim(self, config: Mapping[str, Any]) -> None:
        """Write the configuration into a folder without a run.

        The write is atomic, so only one of two runs that start at once gets the folder.
        """
        text = tomli_w.dumps({k: v for k, v in plain(config).items() if v is not None})
        try:
            create_atomically(self.path / CONFIG, text.encode())
        except FileExistsError as error:
            self._refuse_another_run(error)

    # Small files -------------------------------------------------------------------------------

    def reconfigure(self, config: Mapping[str, Any]) -> None:
        """Write a configuration with other rounds or another end; drop the final results."""
        text = tomli_w.dumps(plain(config))
        # Results first: if the process is killed between, new rounds with old results would look
        # like a finished run.
        self._drop_final_results()
        self.write(CONFIG, text.encode())

    def final_results(self) -> list[str]:
        """Return the names of the existing final results."""
        return [name for name in FINAL_RESULTS if self.holds(name)]

    def _drop_final_results(self) -> None:
        """Remove the final results, their figures and their warnings."""
        with self.writing(METRICS):
            for name in FINAL_RESULTS:
                (self.path / name).unlink(missing_ok=True)
            for figure in (self.path / FIGURES).glob("*.*"):
                figure.unlink()
        told = self.warnings()
        kept = [text for text in told if not text.startswith(FINAL_EVALUATION)]
        if kept != told:
            self.write_lines(WARNINGS, kept)

    def write_metrics(self, metrics: Mapping[str, float]) -> None:
        """Write the final metrics, which mark the run as finished; see ``results.summary``."""
        self.write_json(METRICS, metrics)

    def metrics(self) -> dict[str, float]:
        """Return the final metrics."""
        self.check_finished(METRICS)
        return self.read_json(METRICS)

    def check_finished(self, file: str) -> None:
        """Raise DataError where a file of a run's end is missing, with what ends the run."""
        if not self.holds(file):
            path, made = self.path, (self.rounds() or [{"round": 0}])[-1]["round"]
            config = self.config() if self.holds(CONFIG) else {}
            planned = f" of {config['rounds']}" if "rounds" in config else ""
            own = f" --plugins {config['plugins']}" if config.get("plugins") else ""
            end = f", end it there by bfl finish {path}{own}" if made else ""
            end += ', or take the posterior "latest"' if made else ""
            with_own = f" --run-config 'plugins=\"{config['plugins']}\"'" if own else ""
            raise DataError(
                f"{path} has no {file}: the run has not come to its end (it stands at round "
                f"{made}{planned}); go on with it by bfl run --resume {path}{with_own}{end}"
            )

    # Rounds ------------------------------------------------------------------------------------

    def append_round(self, entry: Mapping[str, Any]) -> None:
        """Append one round's line, and flush it to the disk.

        An incomplete last line, of a process that was killed while writing, is removed first.

        Args:
            entry: ``{"round": 3, "seconds": 4.2, "clients": 10, "accuracy": ..., ...}``. NaN and
                infinity are written as Python's json writes them.
        """
        line = (json.dumps(plain(entry)) + "\n").encode()
        kept, _ = self._whole_rounds()
        with self.writing(ROUNDS) as path:
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
        """Return the rounds in the order of the file; none without a file.

        An incomplete last line is left out; any other corrupt line raises DataError.
        """
        return self._whole_rounds()[1]

    def keep_rounds(self, last: int) -> None:
        """Drop the rounds after ``last``, which will be repeated, and before them final results.

        Args:
            last: The last round to keep; 0 keeps none.
        """
        rounds = self.rounds()
        if any(entry["round"] > last for entry in rounds):
            self._drop_final_results()
        self.write_rounds([entry for entry in rounds if entry["round"] <= last])

    def write_rounds(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Replace the lines of all rounds."""
        self.write_lines(ROUNDS, [json.dumps(plain(entry)) for entry in entries])

    def _whole_rounds(self) -> tuple[bytes, list[dict[str, Any]]]:
        """Return the rounds' file up to its last complete line, and the lines' entries."""
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
                entries.append(round_of(line))
            except CORRUPT as error:
                if number == len(lines):
                    lines.pop()
                    break
                raise DataError(f"{path}, line {number}: not a round ({error})") from error
        return b"".join(lines), entries

    # Warnings ----------------------------------------------------------------------------------

    def append_warning(self, text: str) -> None:
        """Add a line to the warnings, unless a resumed run has it already."""
        if text not in (told := self.warnings()):
            self.write_lines(WARNINGS, [*told, text])

    def warnings(self) -> list[str]:
        """Return the warnings, a line each; none without a file."""
        return self.read_lines(WARNINGS) if self.holds(WARNINGS) else []

    # Figures -----------------------------------------------------------------------------------

    def write_figure(self, name: str, image: bytes) -> Path:
        """Write a file into ``figures/`` and return its path."""
        with self.writing(FIGURES) as path:
            path.mkdir(exist_ok=True)
        return self.write(f"{FIGURES}/{name}", image)
