"""Resuming of a run: its folder, new or begun, and its checkpoints."""

from __future__ import annotations

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
            _refuse_other_data(folder, data or {}, partition or {}, checkpoint)
            _refuse_loss(folder, checkpoint)
            if checkpoint is None and (lost := len(folder.rounds())) > 1:
                # A server may have been killed between a round's record and its checkpoint.
                warnings.warn(
                    f"{folder.path / CHECKPOINTS} has no valid checkpoint; all {lost} rounds are "
                    "repeated",
                    stacklevel=3,
                )
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
    existing = Path(keys.output_dir).absolute()
    try:
        while not existing.exists():
            existing = existing.parent
    except OSError as error:  # the name is too long, or a parent may not be read
        raise ConfigurationError(
            f"output-dir is {keys.output_dir!r}: {error.strerror or error}"
        ) from error
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        what = "is not writable" if existing.is_dir() else "is a file"
        raise ConfigurationError(f"output-dir is {keys.output_dir!r}: {existing} {what}")
    if not keys.name:
        return
    folder = RunFolder.named(keys.output_dir, keys.name)
    given_path(folder.path, "the run's folder")
    if folder.path.exists() and not folder.path.is_dir():
        raise ConfigurationError(
            f"the run's folder would be {folder.path}, which is a file; choose another name"
        )
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
        where = folder.path / run_folder.CONFIG
        raise DataError(f"{where} is not the configuration of a run: it has no rounds")
    # A run begun with clients = 0 has recorded the number of clients.
    free = FREE_TO_CHANGE if now.get("clients") else FREE_TO_CHANGE | {"clients"}
    was = {**default_values(), **saved}
    changed = [key for key in {**saved, **now} if key not in free and was.get(key) != now.get(key)]
    refused, hint = [key for key in changed if key not in keys_of_the_end()], ""
    if "rounds" in refused:
        # Read only if needed: damaged rounds fail their run, and must not refuse a whole study.
        made = max((entry["round"] for entry in folder.rounds()), default=1)
        if configuration.schedule.depends_on_rounds():
            schedule = configuration.schedule.name
            hint = f"; allowed: rounds {was['rounds']}, on which schedule '{schedule}' depends"
        elif configuration.keys.rounds < made:
            hint = f"; allowed: rounds of at least {made}"
        else:
            refused.remove("rounds")  # nothing else in a round depends on it
    if refused:
        differences = (f"{key} was {was.get(key)!r} and is {now.get(key)!r}" for key in refused)
        raise ConfigurationError(
            f"cannot resume {folder.path} under another configuration: {'; '.join(differences)}"
            f"{hint}; resume with the same values, or give the run, or its study, another name"
        )
    return bool(changed)


def _refuse_other_data(
    folder: RunFolder,
    data: Mapping[str, str],
    partition: Mapping[str, Any],
    checkpoint: Checkpoint | None,
) -> None:
    recorded = folder.read_json(run_folder.DATA, data)
    digests = {
        f"{what} data": (recorded.get(what), data.get(what)) for what in sorted({*recorded, *data})
    }
    was = folder.read_json(run_folder.PARTITION, missing=partition)
    same_clients = len(was.get("client_sha256", ())) == len(partition.get("client_sha256", ()))
    if same_clients and checkpoint is not None:
        for who, one, two in (
            ("clients'", was, partition),
            ("server's", was.get("server", {}), partition.get("server", {})),
        ):
            if one.get("sha256") and two.get("sha256"):
                digests[f"the positions of the {who} images"] = one["sha256"], two["sha256"]
    other = [
        f"{what} had the SHA-256 {str(before)[:12]} and have {str(now)[:12]}"
        for what, (before, now) in digests.items()
        if before != now
    ]
    if other:
        raise ConfigurationError(
            f"cannot resume {folder.path} on other data: {'; '.join(other)}; restore them, resume "
            f"with the versions in its {run_folder.ENVIRONMENT} and the same nodes, or make the "
            "run again under another name"
        )


def _refuse_loss(folder: RunFolder, checkpoint: Checkpoint | None) -> None:
    last = checkpoint.server_round if checkpoint else 0
    made = {entry["round"] for entry in folder.rounds()}
    problem = ""
    if checkpoint is None and (results := folder.final_results()):
        problem = (
            f"it holds the results of a finished run ({', '.join(results)}), and no valid "
            f"checkpoint in {folder.path / CHECKPOINTS}; restore the checkpoints"
        )
    elif lost := [number for number in range(1, last + 1) if number not in made]:
        problem = (
            f"its checkpoint is of round {last}, and its {run_folder.ROUNDS} lacks {len(lost)} "
            f"rounds up to it, from round {lost[0]}; restore the file"
        )
    if problem:
        raise ConfigurationError(
            f"cannot resume {folder.path}: {problem}, or make the run again under another name"
        )
