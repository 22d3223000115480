"""What a client keeps from one of its rounds to the next, and never sends: named arrays.

Where it lies:

- in the folder of the node configuration's ``state-dir``, if it has one;
- else, in a simulation, in the run's folder, beside the server's checkpoints;
- else in Flower's context of the node, which lives as long as the SuperNode.

In a folder it survives whatever is killed. In round r a client takes up what it kept in its last
round before r, so a round that is made again, because the server or the client was killed in it,
begins where it began the first time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, Context

from bfl.state import Arrays, Snapshots
from bfl.wire import TrainTask

KEPT = 3
"""The server may go back one checkpoint further than the last, and the client with it."""

RECORD = "bfl.state"


class ClientState(Protocol):
    """Where a client's state lies."""

    def load(self, before: int) -> dict[str, npt.NDArray[Any]]:
        """Return what was kept in the last round before one; nothing if there was none."""

    def save(self, server_round: int, arrays: Arrays) -> None:
        """Keep arrays after a round."""


class StateInFolder:
    """A client's state as snapshots in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._snapshots = Snapshots(folder, kept=KEPT)

    def load(self, before: int) -> dict[str, npt.NDArray[Any]]:
        """Return what was kept in the last round before one; nothing if there was none."""
        found = self._snapshots.latest(before)
        return found[1] if found else {}

    def save(self, server_round: int, arrays: Arrays) -> None:
        """Write a snapshot."""
        self._snapshots.save(server_round, arrays)


class StateInContext:
    """A client's state in Flower's context of its node."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def load(self, before: int) -> dict[str, npt.NDArray[Any]]:
        """Return what was kept in the last round before one; nothing if there was none."""
        for server_round in sorted(self._rounds(), reverse=True):
            if server_round < before:
                record: Any = self._context.state[f"{RECORD}.{server_round}"]
                return {name: array.numpy() for name, array in record.items()}
        return {}

    def save(self, server_round: int, arrays: Arrays) -> None:
        """Put a record into the context, and drop the oldest beyond those kept."""
        self._context.state[f"{RECORD}.{server_round}"] = ArrayRecord(
            {name: Array(np.asarray(array)) for name, array in arrays.items()}
        )
        for old in sorted(self._rounds())[:-KEPT]:
            del self._context.state[f"{RECORD}.{old}"]

    def _rounds(self) -> list[int]:
        prefix = f"{RECORD}."
        return [int(k.removeprefix(prefix)) for k in self._context.state if k.startswith(prefix)]


def client_state(context: Context, task: TrainTask) -> ClientState:
    """Return where the client of a task keeps its state."""
    node: Mapping[str, Any] = context.node_config
    client = f"client-{task.partition_id:06d}"
    if node.get("state-dir"):
        return StateInFolder(Path(str(node["state-dir"])) / client)
    # The run's folder is on this machine in a simulation, and not on a SuperNode's.
    if task.run_folder and Path(task.run_folder).is_dir():
        return StateInFolder(Path(task.run_folder) / "clients" / client)
    return StateInContext(context)
