"""A study's folder: its description, runs, results and failures.

| file | content |
| --- | --- |
| ``study.json`` | the study's complete file, its published table, scale and environment |
| ``runs/NAME/`` | the runs, see ``results.run_folder``; ``log.txt`` is their output |
| ``runs.jsonl`` | the results of finished runs, a line each, see ``run_result`` |
| ``runs.jsonl.gz`` | the same, compressed, if it is large |
| ``failures/NAME.txt`` | the error of a failed run; removed when the run succeeds |
| ``table.*``, ``figures/`` | the output of ``bfl table --write`` and ``bfl plot`` |
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bfl.errors import ConfigurationError, DataError
from bfl.experiments.results.run_folder import CONFIG, METRICS, Files, RunFolder
from bfl.experiments.run.resume import CHECKPOINTS
from bfl.experiments.studies.run_result import RunResult, parse_result
from bfl.files import try_lock

STUDY_JSON, RUNS_JSONL, RUNS_GZ = "study.json", "runs.jsonl", "runs.jsonl.gz"
FAILED = "failed"
"""The state of a run whose last attempt has failed, see ``state``."""

LARGE = 1_000_000
"""The size of results in bytes above which merging compresses them."""


@dataclass(frozen=True)
class StudyFolder(Files):
    """The folder of a study at one scale; see ``Files`` for the errors of reading and writing."""

    @property
    def runs(self) -> Path:
        """The folder of the runs."""
        return self.path / "runs"

    @property
    def study_file(self) -> Path:
        """The file that describes the study."""
        return self.path / STUDY_JSON

    def holds_study(self) -> bool:
        """Return whether the folder describes a study."""
        return self.holds(STUDY_JSON)

    def describe(self, described: Mapping[str, Any]) -> None:
        """Write the study's description."""
        self.write(STUDY_JSON, (json.dumps(described, indent=1) + "\n").encode())

    def described(self) -> dict[str, Any]:
        """Return the study's description.

        Raises:
            ConfigurationError: The folder holds none.
        """
        if not self.holds_study():
            raise ConfigurationError(f"{self.path} is not the folder of a study: no {STUDY_JSON}")
        found = self.read_json(STUDY_JSON)
        with self.decoding(STUDY_JSON):
            return {**found, "scale": dict(found["scale"])}

    def write(self, file: str, data: bytes) -> Path:
        """Replace a file atomically; make its folder if needed."""
        with self.writing(file) as path:
            path.parent.mkdir(parents=True, exist_ok=True)
        return super().write(file, data)

    def run(self, name: str) -> RunFolder:
        """Return the folder of a run."""
        return RunFolder(self.runs / name)

    def results(self) -> dict[str, RunResult]:
        """Return the results in the folder's files, by the runs' names.

        Raises:
            DataError: The file is corrupt, or has two results of one run.
        """
        found: dict[str, RunResult] = {}
        for file in filter(self.holds, (RUNS_JSONL, RUNS_GZ)):
            path = self.path / file
            with self.reading(file) as data:
                lines = (gzip.decompress(data) if file == RUNS_GZ else data).splitlines()
            for result in (parse_result(line, path) for line in lines):
                if result.name in found:
                    raise DataError(f"{path} has two results of the run {result.name}")
                found[result.name] = result
        return found

    def keep(self, results: Iterable[RunResult], *, compress: bool = False) -> None:
        """Add results of runs to the folder's file; each replaces one of the same name.

        Args:
            compress: Whether a large file is compressed; no other process may write to the folder.
        """
        # A merge needs no lock, and its folder gets no files but the results.
        with nullcontext() if compress else self.claimed(RUNS_JSONL, wait=True):
            there = self.results()
            kept = there | {result.name: result for result in results}
            if kept == there and not compress:
                return
            data = "".join(f"{kept[name].to_line()}\n" for name in sorted(kept)).encode()
            large = compress and len(data) > LARGE
            if large:
                self.write(RUNS_GZ, gzip.compress(data, mtime=0))
            else:
                self.write(RUNS_JSONL, data)
            (self.path / (RUNS_JSONL if large else RUNS_GZ)).unlink(missing_ok=True)

    def failure_file(self, name: str) -> Path:
        """Return the path of a run's failure message."""
        return self.path / "failures" / f"{name}.txt"

    @contextmanager
    def claimed(self, name: str, *, wait: bool = False) -> Iterator[bool]:
        """Lock a run for the block, and yield whether no other process has it."""
        with self.writing(f"locks/{name}") as path:
            path.parent.mkdir(parents=True, exist_ok=True)
            stream = path.open("w", encoding="utf-8")
        with stream:
            yield try_lock(stream, wait=wait)


def is_done(folder: RunFolder, rounds: int = 0) -> bool:
    """Return whether a run is finished, with at least this number of rounds."""
    return folder.holds(METRICS) and folder.config().get("rounds", 0) >= rounds


def is_begun(folder: RunFolder) -> bool:
    """Return whether a run has begun."""
    return folder.holds(CONFIG)


def rounds_done(folder: RunFolder) -> int:
    """Return the number of rounds that a resumed run need not repeat."""
    checkpoints = folder.path / CHECKPOINTS
    rounds = folder.rounds() if is_begun(folder) and checkpoints.is_dir() else []
    return int(rounds[-1]["round"]) if rounds else 0


def state(study: StudyFolder, name: str, rounds: int) -> str:
    """Return a run's state in words."""
    folder = study.run(name)
    if is_done(folder, rounds):
        return "done"
    if study.failure_file(name).is_file():
        return FAILED
    if is_begun(folder):
        return f"begun, round {rounds_done(folder)} of {rounds}"
    return "missing"
