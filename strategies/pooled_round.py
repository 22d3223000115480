"""A round between its two halves: pooled, and not yet refined."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.aggregation.client_models import ClientModels
from bfl.federation.state import Snapshots
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.posterior import VECTORS
from strategies.server_state import ServerState

_POSTERIOR, _STATE, _MODELS, _REPORT = "posterior.", "state.", "models.", "report"


@dataclass(frozen=True)
class PooledRound:
    """What pooling has given, before the server does anything else.

    Attributes:
        state: Where the federation stands, with the pooled posterior.
        metrics: What clients and pooling have measured.
        clients: One entry for each client pooled, see ``strategies.tally``.
        models: The clients' models, where a part needs them.
    """

    state: ServerState
    metrics: dict[str, float]
    clients: Sequence[Mapping[str, Any]]
    models: ClientModels | None = None

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all but the round as arrays by name."""
        report = json.dumps({"metrics": self.metrics, "clients": list(self.clients)})
        parts = {
            _POSTERIOR: {name: getattr(self.state.posterior, name) for name in VECTORS},
            _STATE: self.state.to_arrays(),
            _MODELS: self.models.to_arrays() if self.models else {},
        }
        arrays = {
            f"{prefix}{name}": array
            for prefix, named in parts.items()
            for name, array in named.items()
        }
        return {**arrays, _REPORT: np.frombuffer(report.encode(), np.uint8)}

    @classmethod
    def from_arrays(
        cls, server_round: int, arrays: Mapping[str, npt.NDArray[Any]], manifest: Manifest | None
    ) -> PooledRound:
        """Return the round whose ``to_arrays`` this is.

        Raises:
            KeyError: An array is missing.
        """

        def behind(prefix: str) -> dict[str, npt.NDArray[Any]]:
            return {
                name.removeprefix(prefix): array
                for name, array in arrays.items()
                if name.startswith(prefix)
            }

        posterior, models = Posterior(**behind(_POSTERIOR)), behind(_MODELS)
        report = json.loads(arrays[_REPORT].tobytes())
        return cls(
            state=ServerState.from_arrays(server_round, posterior, behind(_STATE)),
            metrics=report["metrics"],
            clients=report["clients"],
            models=ClientModels.from_arrays(models, manifest) if models else None,
        )


class PooledRounds:
    """The round that a run has pooled and not finished: a kill costs what follows, no training.

    Args:
        folder: Where it is kept; it is made when the first one is.
    """

    def __init__(self, folder: Path) -> None:
        self._snapshots = Snapshots(folder, kept=1)

    def save(self, pooled: PooledRound) -> None:
        """Keep a round in place of the one before.

        Raises:
            RunError: It cannot be written.
        """
        self._snapshots.save(pooled.state.server_round, pooled.to_arrays())

    def of(self, server_round: int, manifest: Manifest | None) -> PooledRound | None:
        """Return a round if it is the one that is kept, and sound."""
        found = self._snapshots.latest()
        if found is None or found[0] != server_round:
            return None
        return PooledRound.from_arrays(server_round, found[1], manifest)
