"""A round that is pooled and not yet refined, kept on the disk: a kill then costs no training."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bfl.federation.state import Snapshots
from bfl.named_arrays import add_prefix
from bfl.posteriors import Manifest
from strategies.server_state import PooledRound, ServerState

DIGEST = "of"
"""The entry of a kept round with a digest of where it began."""


class UnfinishedRounds:
    """The round that a run has pooled and not finished: a kill costs what follows, no training.

    A folder may hold what another run has left. So a round counts only for the run that has pooled
    it, and only if it began where the round that is asked for begins.

    Args:
        folder: Where it is kept; it is made when the first one is.
        run: What makes a round of this run another than that of any other run.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._snapshots = Snapshots(folder, kept=1)
        self._run = run

    def save(self, before: ServerState, pooled: PooledRound) -> None:
        """Keep a round in place of the one before.

        Raises:
            RunError: It cannot be written.
        """
        arrays = {**pooled.to_arrays(), DIGEST: self._digest(before)}
        self._snapshots.save(pooled.state.server_round, arrays)

    def after(self, before: ServerState, manifest: Manifest | None) -> PooledRound | None:
        """Return the round after a state if it is the one that is kept, and sound."""
        found = self._snapshots.latest()
        if found is None or found[0] != before.server_round + 1:
            return None
        if not np.array_equal(found[1].get(DIGEST, np.zeros(0)), self._digest(before)):
            return None
        return PooledRound.from_arrays(found[0], found[1], manifest)

    def clear(self) -> None:
        """Remove what is kept: the run is over."""
        self._snapshots.clear()

    def _digest(self, before: ServerState) -> npt.NDArray[np.uint8]:
        found = hashlib.sha256(self._run.encode())
        vectors = add_prefix("posterior.", before.posterior.vectors())
        for name, array in sorted({**vectors, **before.to_arrays()}.items()):
            found.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return np.frombuffer(found.digest(), np.uint8)
