"""A round between its two halves: pooled, and not yet refined."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.aggregation.client_models import ClientModels
from bfl.federation.state import Snapshots
from bfl.named_arrays import add_prefix, strip_prefix
from bfl.posteriors import Manifest, Posterior
from bfl.texts import from_json
from strategies.server_state import ServerState

_POSTERIOR, _STATE, _MODELS, _REPORT = "posterior.", "state.", "models.", "report"
_OF = "of"
"""Entry with a digest of the round that was pooled."""


@dataclass(frozen=True)
class PooledRound:
    """Result of pooling, before the server does anything else.

    Attributes:
        state: Where the federation stands, with the pooled posterior.
        metrics: What clients and pooling have measured.
        clients: One entry for each client pooled, see ``strategies.round_statistics``.
        models: The clients' models, where a part needs them.
    """

    state: ServerState
    metrics: dict[str, float]
    clients: Sequence[Mapping[str, Any]]
    models: ClientModels | None = None

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all but the round as arrays by name."""
        report = json.dumps({"metrics": self.metrics, "clients": list(self.clients)})
        return {
            **add_prefix(_POSTERIOR, self.state.posterior.vectors()),
            **add_prefix(_STATE, self.state.to_arrays()),
            **add_prefix(_MODELS, self.models.to_arrays() if self.models else {}),
            _REPORT: np.frombuffer(report.encode(), np.uint8),
        }

    @classmethod
    def from_arrays(
        cls, server_round: int, arrays: Mapping[str, npt.NDArray[Any]], manifest: Manifest | None
    ) -> PooledRound:
        """Return the round whose ``to_arrays`` this is.

        Raises:
            KeyError: An array is missing.
        """
        posterior, models = (
            Posterior(**strip_prefix(_POSTERIOR, arrays)),
            strip_prefix(_MODELS, arrays),
        )
        report = from_json(arrays[_REPORT].tobytes())
        return cls(
            state=ServerState.from_arrays(server_round, posterior, strip_prefix(_STATE, arrays)),
            metrics=report["metrics"],
            clients=report["clients"],
            models=ClientModels.from_arrays(models, manifest) if models else None,
        )


class PooledRounds:
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

    def save(self, begun: ServerState, pooled: PooledRound) -> None:
        """Keep a round in place of the one before.

        Args:
            begun: The state that it began with.
            pooled: The round.

        Raises:
            RunError: It cannot be written.
        """
        arrays = {**pooled.to_arrays(), _OF: self._digest(begun)}
        self._snapshots.save(pooled.state.server_round, arrays)

    def after(self, begun: ServerState, manifest: Manifest | None) -> PooledRound | None:
        """Return the round after a state if it is the one that is kept, and sound."""
        found = self._snapshots.latest()
        if found is None or found[0] != begun.server_round + 1:
            return None
        if not np.array_equal(found[1].get(_OF, np.zeros(0)), self._digest(begun)):
            return None
        return PooledRound.from_arrays(found[0], found[1], manifest)

    def clear(self) -> None:
        """Remove what is kept: the run is over."""
        self._snapshots.clear()

    def _digest(self, begun: ServerState) -> npt.NDArray[np.uint8]:
        found = hashlib.sha256(self._run.encode())
        vectors = add_prefix(_POSTERIOR, begun.posterior.vectors())
        for name, array in sorted({**vectors, **begun.to_arrays()}.items()):
            found.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return np.frombuffer(found.digest(), np.uint8)
