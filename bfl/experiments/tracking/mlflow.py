"""MLflow."""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from bfl.experiments.tracking import TrackedRun, Tracker, Tracking, trackers

RUN_KEY = "bfl.run-key"
"""The tag by which a run is found again."""

EXPERIMENT = "bfl"
"""The experiment, unless MLFLOW_EXPERIMENT_NAME says another."""

_MOST_PARAMETERS, _MOST_METRICS = 100, 1000
"""Greatest numbers of parameters and of metrics that MLflow takes at a time."""


class _MlflowRun(Tracking):
    def __init__(self, run: TrackedRun) -> None:
        import mlflow
        from mlflow.entities import Param

        # Else it tells of every table of a new database.
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        parent = run.path.resolve().parent
        local = None if mlflow.is_tracking_uri_set() else f"sqlite:///{parent / 'mlflow.db'}"
        self._client = mlflow.MlflowClient(local)
        experiment = self._experiment((parent / "mlflow-artifacts").as_uri() if local else None)
        found = self._client.search_runs([experiment], f"tags.`{RUN_KEY}` = '{run.key}'")
        if found:
            self._id = found[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
        else:
            created = self._client.create_run(
                experiment, run_name=run.name, tags={RUN_KEY: run.key}
            )
            self._id = created.info.run_id
            # A parameter is set once; a run that is given more rounds has this in its config.toml.
            parameters = [Param(key, str(value)) for key, value in run.configuration.items()]
            for part in _parts(parameters, _MOST_PARAMETERS):
                self._client.log_batch(self._id, params=part)
        self._client.log_artifact(self._id, str(run.path / "config.toml"))

    def _experiment(self, artifacts: str | None) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        found = self._client.get_experiment_by_name(name)
        if found:
            return str(found.experiment_id)
        return str(self._client.create_experiment(name, artifact_location=artifacts))

    @property
    def last_round(self) -> int:
        return self._last_step("seconds")

    def log_round(self, number: int, metrics: Mapping[str, float]) -> None:
        self._log(number, metrics)

    def log_end(self, rounds: int, metrics: Mapping[str, float], figures: Sequence[Path]) -> None:
        final = {f"final/{name}": value for name, value in metrics.items()}
        if self._last_step(next(iter(final))) < rounds:
            self._log(rounds, final)
        for path in figures:
            self._client.log_artifact(self._id, str(path), "figures")

    def close(self, *, finished: bool) -> None:
        self._client.set_terminated(self._id, "FINISHED" if finished else "KILLED")

    def _last_step(self, metric: str) -> int:
        history = self._client.get_metric_history(self._id, metric)
        return max((entry.step for entry in history), default=0)

    def _log(self, step: int, metrics: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        entries = [Metric(name, value, now, step) for name, value in metrics.items()]
        for part in _parts(entries, _MOST_METRICS):
            self._client.log_batch(self._id, metrics=part)


def _parts(entries: Iterable[Any], most: int) -> Iterable[list[Any]]:
    iterator = iter(entries)
    while part := list(itertools.islice(iterator, most)):
        yield part


@trackers.register("mlflow")
class MlflowTracker(Tracker):
    """A run of MLflow at MLFLOW_TRACKING_URI, else in ``mlflow.db`` next to the run's folder."""

    package: ClassVar[str] = "mlflow"

    def open(self, run: TrackedRun) -> Tracking:
        """Return a log in the tracking server or database."""
        return _MlflowRun(run)
