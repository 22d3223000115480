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

from bfl.closing import closings
from bfl.configuration import Configuration
from bfl.configuration.settings import in_sections
from bfl.errors import ConfigurationError, DataError, PosteriorError
from bfl.experiments.results.evaluated_clients import drop_evaluations
from bfl.experiments.results.identity import RUN_KEY, locked
from bfl.experiments.results.run_folder import (
    CONFIG,
    DATA,
    ENVIRONMENT,
    FILES_OF_A_BEGUN_RUN,
    PARTITION,
    ROUNDS,
    RUN,
    RunFolder,
)
from bfl.federation.state import Snapshots
from bfl.files import MOST_BYTES_OF_A_NAME, given_path
from bfl.named_arrays import add_prefix, strip_prefix
from bfl.posteriors import Posterior

CHECKPOINTS = "checkpoints"
_POSTERIOR, _STATE = "posterior.", "state."

FREE_TO_CHANGE = frozenset(
    {
        "resume",
        "output-dir",
        "name",
        "log",
        "data-dir",
        "node-timeout",
        "client-timeout",
        "round-retries",
        "plugins",
    }
)
"""Keys that do not affect a run's result: its place, timeouts and retries."""


def keys_of_the_end() -> frozenset[str]:
    """Return the keys that affect only what follows the last round."""
    settings = (key for each in closings.classes() for key in each.setting_keys())
    return frozenset(
        {"closing", "closing-posterior", "figures", "ood-dataset", "corruptions", *settings}
    )


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
        """Write a checkpoint.

        Raises:
            RunError: It cannot be written.
        """
        vectors = add_prefix(_POSTERIOR, checkpoint.posterior.vectors())
        state = add_prefix(_STATE, checkpoint.state)
        self._snapshots.save(checkpoint.server_round, {**vectors, **state})

    def latest(self) -> Checkpoint | None:
        """Return the latest valid checkpoint; None if there is none.

        Raises:
            DataError: Its content is not a posterior.
        """
        found = self._snapshots.latest()
        if found is None:
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

    With ``resume``, a run that has not begun starts, so a supervisor may always set it; and one
    that has made no round starts anew under another configuration. A run can get more rounds, even
    if it is finished, or fewer, down to those that it has made. Rounds recorded after the
    checkpoint are dropped with the final results, and repeated with the same result.

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
        if keys.resume and _starts_anew(folder, configuration):
            # The configuration last: until it is gone, the folder is that of a run without a round.
            for file in (RUN_KEY, RUN, *reversed(FILES_OF_A_BEGUN_RUN)):
                (folder.path / file).unlink(missing_ok=True)
        if not keys.resume or not folder.holds(CONFIG):
            values = in_sections(configuration.values)
            plugins = [plugin for plugin in keys.plugins.split(", ") if plugin]
            described = {**environment, "plugins": plugins}
            RunFolder.create(keys.output_dir, name, values, described, configuration.given)
            checkpoint = None
        else:
            # All checks come before the first write.
            _refuse_changes(folder, configuration)
            checkpoint = Checkpoints(folder).latest()
            _refuse_other_data(folder, configuration, data or {}, partition or {}, checkpoint)
            _refuse_loss(folder, checkpoint)
            _reset(folder, configuration, checkpoint)
        if data and not folder.holds(DATA):
            folder.write_json(DATA, data)
        yield folder, checkpoint


def _starts_anew(folder: RunFolder, configuration: Configuration) -> bool:
    """Return whether a folder has a run of another configuration without a round or a release."""
    if not folder.holds(CONFIG) or not changed_keys(_saved(folder), configuration.values):
        return False
    left = [*folder.path.glob(f"{CHECKPOINTS}/*"), *folder.path.glob("*-begun")]
    return not (left or folder.final_results() or folder.rounds())


def _reset(folder: RunFolder, configuration: Configuration, checkpoint: Checkpoint | None) -> None:
    """Reset a folder to a checkpoint, and its configuration to the one resumed with."""
    if checkpoint is None and (lost := len(folder.rounds())) > 1:
        # A server may have been killed between a round's record and its checkpoint.
        warnings.warn(
            f"{folder.path / CHECKPOINTS} has no valid checkpoint; all {lost} rounds are repeated",
            stacklevel=3,
        )
    saved, now = folder.config(), configuration.values
    if changed_keys(saved, now):  # rounds or keys of the end: all others have been refused
        end = keys_of_the_end()
        changed = {key: now[key] for key in end & now.keys()} | {"rounds": now["rounds"]}
        kept = {k: v for k, v in saved.items() if k not in end}
        folder.reconfigure(in_sections(kept | changed))
    folder.keep_rounds(checkpoint.server_round if checkpoint else 0)
    if configuration.keys.evaluated_by == "clients":
        drop_evaluations(folder, configuration.keys.clients_evaluate)


def _refuse_loss(folder: RunFolder, checkpoint: Checkpoint | None) -> None:
    """Raise if a resume would lose results, or lacks rounds that it would not repeat."""
    where = folder.path / CHECKPOINTS
    found, recorded = folder.final_results(), {entry["round"] for entry in folder.rounds()}
    if checkpoint is None and found:
        raise ConfigurationError(
            f"cannot resume {folder.path}: it holds the results of a finished run "
            f"({', '.join(found)}), and no valid checkpoint in {where}, so that all rounds would "
            "be repeated; restore the checkpoints, or make the run again under another name"
        )
    last = checkpoint.server_round if checkpoint else 0
    if lost := [number for number in range(1, last + 1) if number not in recorded]:
        raise ConfigurationError(
            f"cannot resume {folder.path}: its checkpoint is of round {last}, and "
            f"{folder.path / ROUNDS} lacks {len(lost)} rounds up to it, from round {lost[0]}; "
            "restore the file, or make the run again under another name"
        )


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
    given_path(folder.path, "the run's folder", room=MOST_BYTES_OF_A_NAME)
    if folder.path.exists() and not folder.path.is_dir():
        raise ConfigurationError(
            f"the run's folder would be {folder.path}, which is a file; choose another name"
        )
    if not folder.holds(CONFIG):
        return
    if not keys.resume:
        raise ConfigurationError(
            f"{folder.path} holds another run; choose another name, overwrite it (--overwrite), or "
            "go on with it (--resume, or resume=true)"
        )
    if not _starts_anew(RunFolder.at(folder.path), configuration):
        _refuse_changes(folder, configuration)


def _saved(folder: RunFolder) -> dict[str, Any]:
    saved = folder.config()
    if type(saved.get("rounds")) is not int:
        raise DataError(
            f"{folder.path / CONFIG} is not the configuration of a run: rounds is "
            f"{saved.get('rounds')!r}; expected a whole number"
        )
    return saved


def _refuse_changes(folder: RunFolder, configuration: Configuration) -> None:
    """Raise if keys differ that the rounds made so far depend on."""
    end = keys_of_the_end()
    changed = {
        key: both
        for key, both in changed_keys(_saved(folder), configuration.values).items()
        if key not in end
    }
    was, now = changed.get("rounds", (0, 0))
    # Read only if needed: damaged rounds fail their run, and must not refuse a whole study.
    rounds = folder.rounds() if now != was else []
    made = max((entry["round"] for entry in rounds), default=1)
    allowed = f"rounds of at least {made}"
    if now != was and now >= made:
        if not configuration.schedule.depends_on_rounds():
            del changed["rounds"]  # nothing else in a round depends on it
        allowed = f"rounds {was}, on which schedule '{configuration.schedule.name}' depends"
    if changed:
        differences = (f"{key} was {was!r} and is {now!r}" for key, (was, now) in changed.items())
        hint = f"; allowed: {allowed}" if "rounds" in changed else ""
        raise ConfigurationError(
            f"cannot resume {folder.path} under another configuration: {'; '.join(differences)}"
            f"{hint}; resume with the same values, or give the run, or its study, another name"
        )


def _refuse_other_data(
    folder: RunFolder,
    configuration: Configuration,
    data: Mapping[str, str],
    partition: Mapping[str, Any],
    checkpoint: Checkpoint | None,
) -> None:
    """Raise if data, or the positions that clients or the server have, are not the run's."""
    keys = configuration.keys
    named = {"server": f"server-data {keys.server_data!r}"}
    before = folder.read_json(DATA, missing=data)
    digests = {
        f"the {what} images or labels of {named.get(what, f'dataset {keys.dataset!r}')}": (
            before.get(what),
            data.get(what),
        )
        for what in sorted({*before, *data})
    }
    was = folder.read_json(PARTITION, missing=partition)
    same_clients = len(was.get("client_sha256", ())) == len(partition.get("client_sha256", ()))
    if same_clients and checkpoint is not None:
        for who, one, two in (
            ("clients'", was, partition),
            ("server's", was.get("server", {}), partition.get("server", {})),
        ):
            both = one.get("sha256"), two.get("sha256")
            digests[f"the positions of the {who} images"] = both if all(both) else ("", "")
    other = [
        f"{what} had the SHA-256 {str(one)[:12]} and have {str(two)[:12]}"
        for what, (one, two) in digests.items()
        if one != two
    ]
    if other:
        raise ConfigurationError(
            f"cannot resume {folder.path} on other data: {'; '.join(other)}; restore them, resume "
            f"with the versions in {folder.path / ENVIRONMENT} and the same nodes, or make the run "
            "again under another name"
        )


def changed_keys(saved: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the keys that affect the result and differ, with both values."""
    keys = [key for key in {**saved, **now} if key not in FREE_TO_CHANGE]
    # A run begun with clients = 0 has recorded the number of clients.
    if not now.get("clients"):
        keys.remove("clients")
    return {key: (saved.get(key), now.get(key)) for key in keys if saved.get(key) != now.get(key)}
