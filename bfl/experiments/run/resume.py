"""Resuming of a run: its folder, new or begun, and its checkpoints."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from bfl.archives import add_prefix, strip_prefix
from bfl.closing import closings
from bfl.configuration import Configuration
from bfl.configuration.settings import default_values
from bfl.data.datasets import portable_dataset
from bfl.errors import ConfigurationError, DataError, PosteriorError
from bfl.experiments.results import run_folder
from bfl.experiments.results.run_folder import RunFolder, locked
from bfl.federation.state import Snapshots
from bfl.files import given_path
from bfl.posteriors import Posterior

CHECKPOINTS = "checkpoints"
_POSTERIOR, _STATE = "posterior.", "state."

FREE_TO_CHANGE = frozenset(
    (
        *("resume", "output-dir", "name", "data-dir", "plugins"),
        *("node-timeout", "client-timeout", "round-retries"),
    )
)
"""Keys that do not affect a run's result: its place, timeouts and retries."""


def configuration_hash(values: Mapping[str, Any]) -> str:
    """Return the first 16 digits of the SHA-256 of the keys that a result depends on."""
    kept = {
        key: portable_dataset(str(value)) if key in ("dataset", "server-data") else value
        for key, value in values.items()
        if key not in FREE_TO_CHANGE
    }
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def keys_of_the_end() -> frozenset[str]:
    """Return the keys that affect only what follows the last round."""
    settings = (key for each in closings.classes() for key in each.setting_keys())
    return frozenset({"closing", "figures", "ood-dataset", "corruptions", *settings})


@dataclass(frozen=True)
class Checkpoint:
    """State of a run after a round."""

    server_round: int
    posterior: Posterior
    state: Mapping[str, npt.NDArray[Any]]


class Checkpoints:
    """The last two checkpoints of a run."""

    def __init__(self, folder: RunFolder) -> None:
        self._snapshots = Snapshots(folder.path / CHECKPOINTS)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; RunError where it cannot be written."""
        vectors = add_prefix(_POSTERIOR, checkpoint.posterior.vectors())
        state = add_prefix(_STATE, checkpoint.state)
        self._snapshots.save(checkpoint.server_round, {**vectors, **state})

    def latest(self) -> Checkpoint | None:
        """Return the latest valid checkpoint, if any; DataError if it has no posterior."""
        if (found := self._snapshots.latest()) is None:
            return None
        server_round, arrays = found
        try:
            posterior = Posterior(**strip_prefix(_POSTERIOR, arrays))
            posterior.check()
        except (TypeError, AttributeError, PosteriorError) as error:
            raise DataError(
                f"{self._snapshots.folder}: the checkpoint of round {server_round} is not valid: "
                f"{error}"
            ) from error
        return Checkpoint(server_round, posterior, strip_prefix(_STATE, arrays))


@contextmanager
def open_run(
    configuration: Configuration,
    name: str,
    environment: Mapping[str, Any],
    data: Mapping[str, str] | None = None,
    partition: Mapping[str, Any] | None = None,
) -> Iterator[tuple[RunFolder, Checkpoint | None]]:
    """Yield the folder of a run, locked, and the last checkpoint of a resumed run.

    With ``resume``, a run that has not begun starts, so a supervisor may always set it. A run can
    get more rounds, even if it is finished, or fewer, down to those that it has made. Rounds
    recorded after the checkpoint are dropped with the final results, and repeated with the same
    result.

    Args:
        data: Digests of the run's data, by purpose.
        partition: The partition, as in the run's folder.

    Raises:
        ConfigurationError: The folder cannot be written, is locked, or holds a run of another
            configuration or other data, or one that cannot go on without a loss.
        DataError: The run's files are corrupt.
    """
    keys = configuration.keys
    folder = RunFolder.named(keys.output_dir, name)
    with locked(folder.path):
        checkpoint = None
        if not keys.resume or not folder.holds(run_folder.CONFIG):
            values = configuration.values
            described = {**environment, "plugins": [p for p in keys.plugins.split(", ") if p]}
            defaults = default_values()
            given = {k: v for k, v in configuration.given.items() if v != defaults.get(k)}
            RunFolder.create(keys.output_dir, name, values, described, given)
        else:
            # All checks come before the first write.
            changed = _refuse_changes(folder, configuration)
            checkpoint = Checkpoints(folder).latest()
            _refuse_other_data(folder, data or {}, partition if checkpoint and partition else {})
            _refuse_loss(folder, checkpoint)
            if checkpoint is None and (lost := len(folder.rounds())) > 1:
                # A server may have been killed between a round's record and its checkpoint.
                what = f"no valid checkpoint; all {lost} rounds are repeated"
                warnings.warn(f"{folder.path / CHECKPOINTS} has {what}", stacklevel=3)
            if changed:
                now, end = configuration.values, keys_of_the_end()
                kept = {key: value for key, value in folder.config().items() if key not in end}
                of_end = {key: now[key] for key in end & now.keys()}
                folder.reconfigure({**kept, **of_end, "rounds": now["rounds"]})
            folder.keep_rounds(checkpoint.server_round if checkpoint else 0)
        if data and not folder.holds(run_folder.DATA):
            folder.write_json(run_folder.DATA, data)
        yield folder, checkpoint


def check_output(configuration: Configuration) -> None:
    """Check before the start that a run's folder can be made or resumed; see ``open_run``."""
    keys = configuration.keys
    place = Path(keys.output_dir, keys.name).absolute()
    existing = next(path for path in (place, *place.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        what = "cannot be written" if existing.is_dir() else "is a file"
        raise ConfigurationError(f"the run's folder would be {place}, and {existing} {what}")
    if not keys.name:
        return
    folder = RunFolder.named(keys.output_dir, keys.name)
    given_path(folder.path, "the run's folder")
    if folder.holds(run_folder.CONFIG):
        if not keys.resume:
            raise ConfigurationError(
                f"{folder.path} holds another run; choose another name, overwrite it "
                "(--overwrite), or go on with it (--resume, or resume=true)"
            )
        _refuse_changes(RunFolder.at(folder.path), configuration)


def _refuse_changes(folder: RunFolder, configuration: Configuration) -> bool:
    """Raise if keys differ that the rounds made so far depend on; return whether others do.

    A key that a folder of an older version lacks has its default there.
    """
    now, saved = configuration.values, folder.config()
    if "rounds" not in saved:
        raise DataError(f"{folder.path / run_folder.CONFIG} is not the configuration of a run")
    was = {**default_values(), **saved}
    # A run begun with clients = 0 has recorded the number of clients.
    free = FREE_TO_CHANGE if now.get("clients") else FREE_TO_CHANGE | {"clients"}
    changed = {key for key in now if key not in free and was.get(key) != now[key]}
    refused = changed - keys_of_the_end()
    if "rounds" in refused and not configuration.schedule.depends_on_rounds():
        # Read only if needed: damaged rounds fail their run, and must not refuse a whole study.
        made = max((entry["round"] for entry in folder.rounds()), default=1)
        if configuration.keys.rounds >= made:
            refused.remove("rounds")  # nothing else in a round depends on it
    if refused:
        differences = (f"{k} was {was.get(k)!r} and is {now[k]!r}" for k in now if k in refused)
        raise ConfigurationError(
            f"cannot resume {folder.path} under another configuration: {'; '.join(differences)}; "
            "resume with the same values and as many rounds or more, or give the run, or its "
            "study, another name"
        )
    return bool(changed)


def _refuse_other_data(
    folder: RunFolder, data: Mapping[str, str], partition: Mapping[str, Any]
) -> None:
    """Raise if data, or the positions of the clients' and the server's examples, have changed."""

    def digests(data: Mapping[str, Any], partition: Mapping[str, Any]) -> dict[str, Any]:
        whose = {"clients'": partition, "server's": partition.get("server", {})}
        positions = {f"the positions of the {w} images": p.get("sha256") for w, p in whose.items()}
        return {**{f"{what} data": value for what, value in data.items()}, **positions}

    was = digests(
        folder.read_json(run_folder.DATA, data), folder.read_json(run_folder.PARTITION, partition)
    )
    now = digests(data, partition)
    other = [
        f"{what} had the SHA-256 {str(was.get(what))[:12]} and have {str(now.get(what))[:12]}"
        for what in {**was, **now}
        if was.get(what) != now.get(what) and (now.get(what) or "data" in what)
    ]
    if other:
        raise ConfigurationError(
            f"cannot resume {folder.path} on other data: {'; '.join(other)}; restore them, resume "
            f"with the versions in its {run_folder.ENVIRONMENT} and the same nodes, or make the "
            "run again under another name"
        )


def _refuse_loss(folder: RunFolder, checkpoint: Checkpoint | None) -> None:
    made = {entry["round"] for entry in folder.rounds()}
    last = checkpoint.server_round if checkpoint else 0
    problem = ""
    results = [name for name in run_folder.FINAL_RESULTS if folder.holds(name)]
    if checkpoint is None and results:
        problem = f"its results are there ({', '.join(results)}), and no valid checkpoint"
    elif lost := set(range(1, last + 1)) - made:
        problem = f"its {run_folder.ROUNDS} lacks round {min(lost)} of the {last} that it has made"
    if problem:
        raise ConfigurationError(
            f"cannot resume {folder.path}: {problem}; restore the file, or make the run again "
            "under another name"
        )
