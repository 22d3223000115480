"""Runs in this process for the tests of the serial engine: made, interrupted, and compared."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from bfl.engine.flower import FlowerApp, run_serially
from bfl.experiments.results import RunFolder
from bfl.experiments.run.resume import Checkpoint, Checkpoints

ROOT = Path(__file__).resolve().parents[2]


class KilledError(Exception):
    """Stands for whatever ends a process."""


def make_run(values: Mapping[str, Any], clients: int, folder: Path, **changes: Any) -> RunFolder:
    """Make a run in a folder; changes are keys with underscores."""
    given = {**values, "output-dir": str(folder.parent), "name": folder.name}
    given.update({key.replace("_", "-"): value for key, value in changes.items()})
    run_serially(FlowerApp.read(ROOT), given, clients, {})
    return RunFolder(folder)


def digests(folder: RunFolder) -> list[str]:
    """Return the posterior's digest after each round."""
    return [entry["posterior-sha256"] for entry in folder.rounds()]


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
