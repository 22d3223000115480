"""Runs in this process for the tests of the serial engine: made, interrupted, and compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from flwr.app import Message, RecordDict

from bfl.archives import strip_prefix
from bfl.engine.flower.app import FlowerApp, run_serially
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.run.resume import Checkpoint, Checkpoints
from bfl.federation.state import Snapshots
from strategies import updates as received

if TYPE_CHECKING:
    from bfl.learning.training import LocalTask
    from bfl.learning.training.trainer import LocalTrainer

ROOT = Path(__file__).resolve().parents[2]


class KilledError(Exception):
    """Stands for whatever ends a process."""


def make_run(values: Mapping[str, Any], clients: int, folder: Path, **changes: Any) -> RunFolder:
    """Make a run in a folder; changes are keys with underscores."""
    given = {**values, "output-dir": str(folder.parent), "name": folder.name}
    given.update({key.replace("_", "-"): value for key, value in changes.items()})
    run_serially(FlowerApp.read(ROOT), given, clients, {})
    return RunFolder(folder)


def watch_training(patch: pytest.MonkeyPatch) -> list[tuple[LocalTrainer, LocalTask]]:
    """Return a list that gets the trainer and the task of each training from now on."""
    from bfl.learning.training.trainer import LocalTrainer

    trained: list[tuple[LocalTrainer, LocalTask]] = []
    train = LocalTrainer.train

    def watched(trainer: LocalTrainer, images: Any, labels: Any, task: LocalTask) -> Any:
        trained.append((trainer, task))
        return train(trainer, images, labels, task)

    patch.setattr(LocalTrainer, "train", watched)
    return trained


def watch_updates(patch: pytest.MonkeyPatch) -> list[RecordDict]:
    """Return a list that gets what each client sends from now on."""
    sent: list[RecordDict] = []
    read = received.read_update

    def watched(reply: Message, *given: Any, **more: Any) -> Any:
        sent.append(reply.content)
        return read(reply, *given, **more)

    patch.setattr(received, "read_update", watched)
    return sent


def digests(folder: RunFolder) -> list[str]:
    """Return the posterior's digest after each round."""
    return [entry["posterior-sha256"] for entry in folder.rounds()]


def history(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the rounds without what depends on the machine."""

    def lasting(entry: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in entry.items() if "seconds" not in k and "memory" not in k}

    return [
        {**lasting(entry), "per-client": [lasting(client) for client in entry["per-client"]]}
        for entry in folder.rounds()
    ]


def snapshots_of(folder: RunFolder, client: int, prefix: str = "") -> dict[int, dict[str, Any]]:
    """Return what a client has kept under names with a prefix, by round."""
    snapshots = Snapshots(folder.path / "clients" / f"client-{client:06d}", kept=3)
    numbers = [entry.server_round for entry in snapshots._entries()]
    return {number: strip_prefix(prefix, snapshots.at(number) or {}) for number in numbers}


def check_same_states(one: RunFolder, other: RunFolder, clients: int) -> None:
    """Check that two runs have the same posteriors, and kept the same on their clients at last."""
    assert digests(one) == digests(other)
    for client in range(clients):
        first, second = snapshots_of(one, client), snapshots_of(other, client)
        last = max(first)
        assert max(second) == last
        assert first[last].keys() == second[last].keys()
        for name, array in first[last].items():
            np.testing.assert_array_equal(array, second[last][name])


def interrupt(monkeypatch: pytest.MonkeyPatch, folder: Path, make: Callable[[], object]) -> None:
    """Make a run until its second round is saved, and lose that: the clients are ahead then."""
    save = Checkpoints.save

    def stop(checkpoints: Checkpoints, checkpoint: Checkpoint) -> None:
        save(checkpoints, checkpoint)
        if checkpoint.server_round == 2:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", stop)
        with pytest.raises(KilledError):
            make()
    sorted((folder / "checkpoints").iterdir())[-1].unlink()
