"""State that a client keeps from round to round and never sends: named arrays, by parts.

It lies in a folder, where it survives whatever is killed, and the node alone decides in which:

- at a SuperNode, in that of the node configuration's ``state-dir``, by run;
- in a simulation, in the run's folder, besides the server's checkpoints. On several hosts that
  folder has to be shared, at one path: a client that does not find it there ends the run.

**What a client keeps counts only once the server has pooled its update.** A task names the last
round in which it has; the client takes up what it kept in that round, and drops what came after:
otherwise a client whose reply was lost, late or refused would go on from something that the server
never had. So a round that is made again, because the server or the client was killed in it, begins
where it began the first time.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt
from flwr.app import Context, RecordDict

from bfl.archives import add_prefix, strip_prefix
from bfl.deployment.private_files import PRIVATE_FOLDER
from bfl.errors import (
    ConfigurationError,
    DataError,
    LostStateError,
    RunError,
    SharedFolderError,
    public,
)
from bfl.experiments.results.run_folder import is_run_key, read_run_key
from bfl.federation.parts import Arrays, Trained, TwoSidedPart, extras_problem
from bfl.federation.state import Snapshots
from bfl.federation.wire import TrainTask, extra_arrays
from bfl.posteriors import Posterior
from clients.node import Node

OPTIMIZER = "optimizer."  # begins the names of the optimizer's arrays in what a client keeps

_PREFIX = "part."


@dataclass(frozen=True)
class PartStates:
    """The states of a client's parts in one round, by the names of the states."""

    parts: Sequence[TwoSidedPart] = ()
    states: Mapping[str, Arrays] = field(default_factory=dict)

    @classmethod
    def of(
        cls, parts: Sequence[TwoSidedPart], kept: Arrays, task: TrainTask, received: Posterior
    ) -> PartStates:
        """Return the states that a round begins with.

        Args:
            kept: What the client kept in the last round that the server has pooled; nothing if
                there has been none.
            received: The global posterior, which gives the sizes.
        """
        states: dict[str, Arrays] = {}
        for part in parts:
            name = part.client_state_name
            if not name:
                continue
            if not task.pooled_round:
                states[name] = {**states.get(name, {}), **part.begin_client(received)}
                continue
            # Of parts that share a state, each takes up what the one before has made of it.
            before = states[name] if name in states else strip_prefix(f"{_PREFIX}{name}.", kept)
            states[name] = part.commit(before, task.damping)
        return cls(parts, states)

    def of_part(self, part: TwoSidedPart) -> Arrays:
        """Return the state of a part; nothing if it has none."""
        return self.states.get(part.client_state_name, {})

    def conclude(self, trained: Trained) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return what the client sends besides its posterior, and what it keeps."""
        sent: dict[str, Any] = {}
        kept: dict[str, npt.NDArray[Any]] = {}
        for part in self.parts:
            extras, state = part.conclude(self.of_part(part), trained)
            if state and not part.client_state_name:
                problem = (
                    f"part '{part.name}' keeps {', '.join(sorted(state))} on its client; "
                    "allowed: with a state_name and keeps_on_clients=True"
                )
                raise public(ConfigurationError(problem))
            sent.update(extras)
            kept |= add_prefix(f"{_PREFIX}{part.client_state_name}.", state)
        return sent, kept


def read_extras(content: RecordDict, parts: Sequence[TwoSidedPart], received: Posterior) -> Arrays:
    """Return what the server has sent besides the posterior, if it is as the parts declare it."""
    try:
        arrays = extra_arrays(content)
    except Exception as error:  # whatever NumPy makes of bytes that the server has chosen
        raise public(RunError(f"the server has sent, besides the posterior: {error}")) from error
    declared = [array for part in parts for array in part.declared_broadcast(received)]
    if problem := extras_problem(arrays, declared):
        raise public(RunError(f"the server has sent, besides the posterior, {problem}"))
    return arrays


def client_state(context: Context, node: Node, task: TrainTask) -> ClientState:
    """Return where the client of a task keeps its state.

    Raises:
        SharedFolderError: The node is simulated on a host that does not see the run's folder.
    """
    client = f"client-{task.partition_id:06d}"
    if node.simulated and task.run_folder:
        folder = Path(task.run_folder)
        if read_run_key(folder) != task.run_key:
            raise SharedFolderError(
                f"clients of a simulation keep their state in the run's folder, and host "
                f"{socket.gethostname()} does not find this run in {folder}; a simulation over "
                "several hosts needs an output-dir that all of them share at one path"
            )
        return ClientState(folder / "clients" / client)
    if not node.state_dir:
        nowhere = ConfigurationError(
            "this client keeps a state and has no place for it; allowed: state-dir in the node "
            "configuration, or in a simulation the folder and key of the Strategy's RunSupport"
        )
        raise public(nowhere)
    # A server must not choose a path; a ServerApp of the user's own may have no run's key.
    if task.run_key and not is_run_key(task.run_key):
        raise ConfigurationError(f"the run's key is {task.run_key!r}; expected 32 hex digits")
    run = f"run-{task.run_key or context.run_id}"
    return ClientState(Path(node.state_dir) / run / client, private=True)


KEPT = 3  # the server may go back one checkpoint further than the last, and the client with it


class ClientState:
    """A client's state as snapshots in a folder of its own.

    Args:
        private: Whether nobody but the owner may enter it and the run's folder that it is in:
            others of a node's machine have no business with what its client has learnt.
    """

    def __init__(self, folder: Path, *, private: bool = False) -> None:
        self._folder, self._private = folder, private
        self._snapshots = Snapshots(folder, kept=KEPT)

    def restore(self, task: TrainTask) -> Arrays:
        """Return what was kept in the last round that was pooled, and drop what came after it.

        What a later round than the task's has left stays. Nothing, if no round has been pooled.

        Raises:
            LostStateError: It is gone, or damaged.
        """
        self._snapshots.drop_between(task.pooled_round, task.server_round)
        try:
            kept = self._snapshots.at(task.pooled_round)
        except DataError as error:
            raise LostStateError(
                f"{error}: the client would begin elsewhere than it ended, and the run end in "
                "another posterior; restore that file, or make the run again"
            ) from error
        if kept is None and task.pooled_round:
            lost = LostStateError(
                f"client {task.partition_id}: what it kept in round {task.pooled_round} is gone, "
                "and without it the client would not send what it would have sent"
            )
            raise public(lost)
        return kept or {}

    def save(self, server_round: int, arrays: Arrays) -> None:
        """Keep arrays after a round, until the server has pooled it."""
        if self._private:
            try:
                # Each by itself: a mode is that of the last folder alone. The run's as well, as
                # the names in it say whom this machine plays.
                self._folder.parent.parent.mkdir(parents=True, exist_ok=True)
                for folder in (self._folder.parent, self._folder):
                    folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            except OSError as error:
                raise RunError(f"cannot write {self._folder}: {error.strerror or error}") from error
        self._snapshots.save(server_round, arrays)
