"""A study's folder: the study itself, its runs, what has failed, and what is made of them.

| file | content |
| --- | --- |
| ``study.toml`` and the published table | complete copies: the folder is read by itself |
| ``study.json`` | title, reduction, environment, runs taken from other studies |
| ``runs/NAME/`` | the runs, see ``results.run_folder``; ``log.txt`` is what they have said |
| ``runs/NAME.json`` | what a finished run has given, see ``run_result`` |
| ``failures/NAME.txt`` | why a run has failed; it goes when the run succeeds |
| ``table.md``, ``.csv``, ``.tex``; ``figures/`` | what ``bfl table`` and ``bfl plot`` make |
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bfl.errors import ConfigurationError, DataError, RunError
from bfl.experiments.results.run_folder import CONFIG, METRICS, RunFolder
from bfl.experiments.run.resume import CHECKPOINTS
from bfl.experiments.studies.extending import read_extended
from bfl.experiments.studies.scale import Scale, ScaledStudy
from bfl.files import try_lock, write_atomically
from bfl.texts import from_json

STUDY_TOML = "study.toml"
STUDY_JSON = "study.json"
FIGURES = "figures"
FAILED = "failed"
"""Where a run stands whose last attempt has failed, see ``state``."""


@dataclass(frozen=True)
class StudyFolder:
    """The folder of a study at one scale.

    Attributes:
        path: The folder.
    """

    path: Path

    @property
    def runs(self) -> Path:
        """The folder of the runs."""
        return self.path / "runs"

    def holds_study(self) -> bool:
        """Return whether a study has been begun here."""
        return (self.path / STUDY_JSON).is_file()

    def begin(
        self,
        scaled: ScaledStudy,
        environment: Mapping[str, Any],
        reused: Mapping[str, str],
    ) -> None:
        """Write what the study is.

        Args:
            scaled: The study.
            environment: See ``describe_environment``.
            reused: Runs that other studies have made, by the study's own name of the run.

        Raises:
            RunError: Something cannot be written.
        """
        published = scaled.study.published
        copies = {} if published is None else {published.name: published.path}
        described = {
            "title": scaled.study.title,
            "name": scaled.study.name,
            "scale": dict(scaled.scale.amounts),
            "note": scaled.said,
            "runs": [run.name for run in scaled.runs],
            "reused": dict(reused),
            "environment": dict(environment),
        }
        if scaled.study.source.resolve() != self.study_file.resolve():
            self.write(STUDY_TOML, read_extended(scaled.study.source).to_toml())
        for name, source in copies.items():
            if source.resolve() != (self.path / name).resolve():
                self.write(name, source.read_bytes())
        self.write(STUDY_JSON, (json.dumps(described, indent=2) + "\n").encode())

    @property
    def study_file(self) -> Path:
        """The study's own file, a copy of what it was begun with."""
        return self.path / STUDY_TOML

    def scale(self) -> Scale:
        """Return the scale at which the study has been begun.

        Raises:
            ConfigurationError: The folder holds none.
            DataError: Its files are corrupt.
        """
        return Scale(self._described("scale"))

    def reused(self) -> dict[str, str]:
        """Return which runs are those of other studies, and where these lie."""
        return self._described("reused") if self.holds_study() else {}

    def _described(self, key: str) -> dict[str, Any]:
        path = self.path / STUDY_JSON
        if not self.holds_study():
            raise ConfigurationError(f"{self.path} is not the folder of a study: no {STUDY_JSON}")
        try:
            return dict(from_json(path.read_bytes())[key])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} is corrupt: {error!r}") from error

    def write(self, name: str, data: bytes) -> Path:
        """Write a file of the folder as a whole, and return its path.

        Raises:
            RunError: It cannot be written.
        """
        path = self.path / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, data)
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror or error}") from error
        return path

    # Runs --------------------------------------------------------------------------------------

    def run(self, name: str) -> RunFolder:
        """Return the folder of a run; that of another study where it is reused."""
        elsewhere = self.reused().get(name)
        return RunFolder(Path(elsewhere) if elsewhere else self.runs / name)

    def result_file(self, name: str) -> Path:
        """Return the file of what a run has given."""
        return self.runs / f"{name}.json"

    def failure_file(self, name: str) -> Path:
        """Return the file that says why a run has failed."""
        return self.path / "failures" / f"{name}.txt"

    def record_failure(self, name: str, text: str) -> None:
        """Write why a run has failed.

        Raises:
            RunError: It cannot be written.
        """
        self.write(f"failures/{name}.txt", text.encode())

    def forget_failure(self, name: str) -> None:
        """Drop what is written of a run's failure."""
        self.failure_file(name).unlink(missing_ok=True)

    @contextmanager
    def claimed(self, name: str) -> Iterator[bool]:
        """Give a block the run, unless another process works on it: yield whether it is ours."""
        path = self.path / "locks" / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            stream = path.open("w", encoding="utf-8")
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror or error}") from error
        with stream:
            yield try_lock(stream)


def is_done(folder: RunFolder, rounds: int = 0) -> bool:
    """Return whether a run has come to its end, and has as many rounds as are asked for."""
    return folder.holds(METRICS) and folder.config().get("rounds", 0) >= rounds


def is_begun(folder: RunFolder) -> bool:
    """Return whether a run has begun."""
    return folder.holds(CONFIG)


def rounds_done(folder: RunFolder) -> int:
    """Return the number of rounds that a run which is resumed need not make again."""
    checkpoints = folder.path / CHECKPOINTS
    rounds = folder.rounds() if is_begun(folder) and checkpoints.is_dir() else []
    return int(rounds[-1]["round"]) if rounds else 0


def state(study: StudyFolder, name: str, folder: RunFolder, rounds: int) -> str:
    """Return in words where a run stands."""
    if is_done(folder, rounds):
        return "done"
    if study.failure_file(name).is_file():
        return FAILED
    if is_begun(folder):
        return f"begun, round {rounds_done(folder)} of {rounds}"
    return "missing"
