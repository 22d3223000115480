"""State that the server carries from round to round: one value, for checkpoints as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.federation.parts import Arrays
from bfl.named_arrays import add_prefix, strip_prefix
from bfl.posteriors import Posterior

_OPTIMIZER, _PARTS, _PREDICTIVE = "server-optimizer.", "part.", "predictive."
_UNROUNDED = "unrounded."
_ROUNDS, _DAMPING = "pooled-rounds", "damping"


@dataclass(frozen=True)
class ServerState:
    """State of a federation after a round.

    Attributes:
        server_round: The round that is over; 0 before the first.
        posterior: The global posterior.
        pooled_rounds: (K,) the last round in which each client's update was pooled; 0: none yet.
        damping: (K,) by how much the pooled change was damped in that round.
        server_optimizer: What the server optimizer keeps.
        parts: What the parts keep, by the names of their states.
        predictive: What the predictive keeps of the round.
        pooled: The posterior as it was pooled, in float64 and without point parameters; None unless
            the pooling rule ``keeps_unrounded``.
    """

    server_round: int
    posterior: Posterior
    pooled_rounds: npt.NDArray[np.int64]
    damping: npt.NDArray[np.float64]
    server_optimizer: Arrays = field(default_factory=dict)
    parts: Mapping[str, Arrays] = field(default_factory=dict)
    predictive: Arrays = field(default_factory=dict)
    pooled: Posterior | None = None

    @classmethod
    def first(
        cls, posterior: Posterior, clients: int, parts: Mapping[str, Arrays] | None = None
    ) -> ServerState:
        """Return the state before the first round, when no client has been pooled."""
        return cls(0, posterior, np.zeros(clients, np.int64), np.ones(clients), parts=parts or {})

    def with_pooled(
        self, partition_ids: Iterable[int], server_round: int, damping: float
    ) -> ServerState:
        """Return the state with some clients' updates pooled in a round."""
        pooled = list(partition_ids)
        rounds, shares = self.pooled_rounds.copy(), self.damping.copy()
        rounds[pooled], shares[pooled] = server_round, damping
        return replace(self, pooled_rounds=rounds, damping=shares)

    @property
    def unrounded(self) -> Posterior | None:
        """Pooled posterior, if the posterior is that but for rounding; otherwise None."""
        if self.pooled is None:
            return None
        for name in ("mean", "variance"):
            sent = getattr(self.posterior, name)
            with np.errstate(over="ignore"):  # what was clipped
                rounded = getattr(self.pooled, name).astype(sent.dtype)
            if not np.array_equal(rounded, sent):
                return None
        return self.pooled

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all but the round and the posterior as arrays by name."""
        arrays: dict[str, npt.NDArray[Any]] = {
            _ROUNDS: self.pooled_rounds,
            _DAMPING: self.damping,
        }
        if self.pooled is not None:
            arrays[f"{_UNROUNDED}mean"] = self.pooled.mean
            arrays[f"{_UNROUNDED}variance"] = self.pooled.variance
        arrays |= add_prefix(_OPTIMIZER, self.server_optimizer) | add_prefix(
            _PREDICTIVE, self.predictive
        )
        for part, state in self.parts.items():
            arrays |= add_prefix(f"{_PARTS}{part}.", state)
        return arrays

    @classmethod
    def from_arrays(
        cls, server_round: int, posterior: Posterior, arrays: Mapping[str, npt.NDArray[Any]]
    ) -> ServerState:
        """Return the state whose ``to_arrays`` this is.

        Raises:
            KeyError: An array is missing.
        """
        parts: dict[str, dict[str, npt.NDArray[Any]]] = {}
        for key, array in strip_prefix(_PARTS, arrays).items():
            part, name = key.split(".", maxsplit=1)
            parts.setdefault(part, {})[name] = array
        return cls(
            server_round=server_round,
            posterior=posterior,
            pooled_rounds=np.asarray(arrays[_ROUNDS]),
            damping=np.asarray(arrays[_DAMPING]),
            server_optimizer=strip_prefix(_OPTIMIZER, arrays),
            parts=parts,
            predictive=strip_prefix(_PREDICTIVE, arrays),
            pooled=_unrounded(arrays),
        )


def _unrounded(arrays: Mapping[str, npt.NDArray[Any]]) -> Posterior | None:
    if f"{_UNROUNDED}mean" not in arrays:
        return None
    return Posterior(arrays[f"{_UNROUNDED}mean"], arrays[f"{_UNROUNDED}variance"], np.empty(0))
