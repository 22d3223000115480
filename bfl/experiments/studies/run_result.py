"""Results of finished runs, one line of JSON each, sufficient for tables and figures.

| key | content |
| --- | --- |
| ``content`` | SHA-256 of all that follows, which detects manual changes |
| ``format`` | 2 |
| ``name`` | the run's name within its study |
| ``digest`` | SHA-256 of ``configuration`` |
| ``configuration`` | all keys that the result depends on; files of data sets without their folder |
| ``made-as`` | the run that this result was copied from, as it has the same computation; or empty |
| ``metrics`` | numbers of ``metrics.json``, ``run.json:foreign``; gains of ``run.json:retention`` |
| ``seconds`` | the duration of all rounds |
| ``partition`` | SHA-256 of the partition |
| ``data`` | digests of the training, test and server's images |
| ``environment`` | versions, machine, commit, and whether the commit can be found |
| ``posterior-sha256`` | SHA-256 of the final posterior |
| ``clients`` | metrics of each client's models on its test data, if clients evaluate |
| ``lost`` | numbers of failed and of refused clients, over all rounds |
| ``rounds``, ``retention`` | the learning and retention curves, to seven digits |
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pydantic

from bfl.data.datasets import portable_dataset
from bfl.errors import DataError
from bfl.evaluation.evaluated_ensemble import ENSEMBLE
from bfl.evaluation.metrics import metrics as registered_metrics
from bfl.experiments.results.evaluated_clients import number_of_a_client
from bfl.experiments.results.foreign import numbers_of_foreign
from bfl.experiments.results.identity import digest, partition_digest
from bfl.experiments.results.run_folder import (
    CLIENTS,
    DATA,
    ENVIRONMENT,
    FOREIGN,
    METRICS,
    PARTITION,
    RETENTION,
    ROUNDS,
    RunFolder,
)
from bfl.experiments.run.resume import FREE_TO_CHANGE
from bfl.experiments.studies.columns import GAIN, kept_of_rounds, number_of_curves
from bfl.texts import from_json

FORMAT = 2
CONTENT = "content"
DIGITS = 7
"""Significant digits of curves' points; metrics have full precision."""

COMMIT, CHANGED, NOT_FOUND = "git-commit", "git-changed", "git-not-found"
"""Keys of an environment: commit, uncommitted changes, a commit that no history contains."""

LOST = ("failures", "refused")
"""Counts in a round's record of sampled clients that were not pooled."""

_DATA_KEYS = ("dataset", "server-data")


@dataclass(frozen=True)
class RunResult:
    """The result of a run; its other attributes are the keys of the module's table.

    Unknown or missing parts are empty. An unfinished or unevaluated run has no metrics.

    Attributes:
        rounds: The evaluated rounds: ``round``, metrics, and numbers of pooling.
        over: Whether the run is finished; only finished runs are kept in files.
        lost: The counts that are not 0; None if unknown, as in files of older versions.
        source: The file or folder that it was read from.
    """

    name: str
    configuration: Mapping[str, Any]
    metrics: Mapping[str, float]
    rounds: tuple[Mapping[str, int | float], ...]
    retention: Mapping[str, Any]
    seconds: float
    partition: str
    environment: Mapping[str, Any]
    data: Mapping[str, str] = field(default_factory=dict)
    made_as: str = ""
    posterior: str = ""
    over: bool = True
    clients: Mapping[str, Mapping[str, int | float]] = field(default_factory=dict)
    lost: Mapping[str, int] | None = None
    source: Path = field(default=Path(), compare=False)

    @property
    def number_of_rounds(self) -> int:
        """The configured number of rounds."""
        return int(self.configuration["rounds"])

    def number(self, name: str) -> float | None:
        """Return a number of the run, its curves or a client by its name; None if it has none."""
        if name in self.metrics:
            return self.metrics[name]
        if of_client := number_of_a_client(name):
            return self.clients.get(of_client[0], {}).get(of_client[1])
        return number_of_curves(name, self.rounds)

    def to_line(self) -> str:
        """Return the result as one line of JSON, with the digest of its content."""
        columns = dict.fromkeys(key for row in self.rounds for key in row)
        content = {
            "format": FORMAT,
            "name": self.name,
            "digest": digest(self.configuration),
            "configuration": dict(sorted(self.configuration.items())),
            "made-as": self.made_as,
            "metrics": dict(self.metrics),
            "seconds": round(self.seconds, 3),
            "partition": self.partition,
            **({"data": dict(self.data)} if self.data else {}),
            **({} if self.lost is None else {"lost": dict(self.lost)}),
            **({"posterior-sha256": self.posterior} if self.posterior else {}),
            "environment": dict(self.environment),
            **({"clients": short(self.clients)} if self.clients else {}),
            "rounds": short({key: [row.get(key) for row in self.rounds] for key in columns}),
            "retention": short(self.retention),
        }
        content = from_json(json.dumps(content))
        return json.dumps({CONTENT: digest(content), **content}, separators=(",", ":"))


_RESULT = pydantic.TypeAdapter(RunResult)


def parse_result(line: str | bytes, source: Path) -> RunResult:
    """Return the result in a line of JSON.

    Raises:
        DataError: The line is not a result, or a digest does not match.
    """
    try:
        content = from_json(line)
        if content["format"] != FORMAT:
            raise ValueError(f"its format is {content['format']!r}; expected {FORMAT}")
        seal = content.pop(CONTENT)
        columns = content["rounds"]
        rows = [zip(columns, row, strict=True) for row in zip(*columns.values(), strict=True)]
        fields = {key.replace("-", "_"): value for key, value in content.items()} | {
            "rounds": [{name: n for name, n in row if n is not None} for row in rows],
            "posterior": content.get("posterior-sha256", ""),
            "source": source,
        }
        result = _RESULT.validate_python(fields)
        if type(result.configuration["rounds"]) is not int:
            raise ValueError(f"rounds is {result.configuration['rounds']!r}")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{source} has a line that is no run's result: {error!r}") from error
    if content.get("digest") != digest(result.configuration) or seal != digest(content):
        raise DataError(
            f"{source}: the result of {result.name} does not match its digest; it has been changed "
            "since it was written"
        )
    return result


def portable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that a result depends on, without what differs between machines."""
    return {
        key: portable_dataset(str(value)) if key in _DATA_KEYS else value
        for key, value in values.items()
        if key not in FREE_TO_CHANGE
    }


def result_of(folder: RunFolder, name: str) -> RunResult:
    """Return the result of a run from its folder; without metrics if it is not finished.

    Raises:
        DataError: A file of the run is missing or corrupt.
    """
    rounds = folder.rounds()
    # A posterior with infinite logits has no metrics, but its ensemble may have some.
    evaluated = [
        {key: entry[key] for key in kept_of_rounds() if key in entry}
        for entry in rounds
        if any(key.removeprefix(ENSEMBLE) in registered_metrics.names() for key in entry)
    ]
    over = folder.holds(METRICS)
    return RunResult(
        name=name,
        configuration=portable(folder.config()),
        metrics=_metrics(folder) if over else {},
        rounds=tuple(evaluated),
        retention=folder.read_json(RETENTION, {}),
        seconds=math.fsum(float(entry.get("seconds", 0.0)) for entry in rounds),
        partition=partition_digest(folder.read_json(PARTITION)) if folder.holds(PARTITION) else "",
        environment=folder.read_json(ENVIRONMENT, {}),
        data=folder.read_json(DATA, {}),
        posterior=str(rounds[-1].get("posterior-sha256", "")) if rounds else "",
        over=over,
        clients=folder.read_json(CLIENTS, {}),
        lost=_lost(folder, rounds),
        source=folder.path,
    )


def _lost(folder: RunFolder, rounds: Sequence[Mapping[str, Any]]) -> dict[str, int] | None:
    """Return the numbers of lost clients over all rounds; None if rounds do not record them."""
    if not any(name in entry for entry in rounds for name in LOST):
        return None
    with folder.decoding(ROUNDS):
        counts = {name: sum(int(entry.get(name) or 0) for entry in rounds) for name in LOST}
    return {name: count for name, count in counts.items() if count}


def _metrics(folder: RunFolder) -> dict[str, float]:
    with folder.decoding(METRICS):
        numbers = {name: float(value) for name, value in folder.metrics().items()}
    if folder.holds(FOREIGN):
        with folder.decoding(FOREIGN):
            numbers |= numbers_of_foreign(folder.read_json(FOREIGN))
    if folder.holds(RETENTION):
        with folder.decoding(RETENTION):
            for metric, by_uncertainty in folder.read_json(RETENTION).get("gains", {}).items():
                for by, gain in by_uncertainty.items():
                    numbers[f"{GAIN}{metric}-{by}"] = float(gain)
    return numbers


def short(value: Any) -> Any:
    """Return a value with its floats rounded to seven significant digits."""
    if isinstance(value, Mapping):
        return {str(key): short(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [short(entry) for entry in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
