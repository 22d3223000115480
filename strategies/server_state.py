"""State that the server carries from round to round: one value, for checkpoints as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.aggregation.samplers import ClientModels
from bfl.errors import PosteriorError, RunError
from bfl.federation.parts import Arrays
from bfl.named_arrays import add_prefix, strip_prefix
from bfl.posteriors import Manifest, Posterior


@dataclass(frozen=True)
class PooledRound:
    """Result of a round: pooled, noised, stepped and floored as its method does, not refined.

    Attributes:
        state: Where the federation stands, with the pooled posterior.
        metrics: What clients and pooling have measured.
        entries: One for each client pooled, see ``strategies.updates.client_entries``.
        left_out: One for each client that was selected and is not in the pool: ``client``, the
            partition id, its ``name`` and the ``reason``.
        suspicion: By partition id, whose values were far from all others', and how far.
    """

    state: ServerState
    metrics: dict[str, float]
    entries: Sequence[Mapping[str, Any]]
    models: ClientModels | None = None
    left_out: Sequence[Mapping[str, Any]] = ()
    suspicion: Mapping[int, str] = field(default_factory=dict)


_OPTIMIZER, _PARTS, _PREDICTIVE = "server-optimizer.", "part.", "predictive."
_UNROUNDED = "unrounded."
_ROUNDS, _DAMPING = "pooled-rounds", "damping"


@dataclass(frozen=True)
class ServerState:
    """State of a federation after a round.

    Attributes:
        server_round: The round that is over; 0 before the first.
        last_pooled: (K,) the last round in which each client's update was pooled; 0: none yet.
        damping: (K,) by how much the pooled change was damped in that round.
        parts: What the parts keep, by the names of their states.
        before_rounding: The posterior as it was pooled, in float64 and without point parameters;
            None unless the pooling rule ``keeps_unrounded``.
    """

    server_round: int
    posterior: Posterior
    last_pooled: npt.NDArray[np.int64]
    damping: npt.NDArray[np.float64]
    server_optimizer: Arrays = field(default_factory=dict)
    parts: Mapping[str, Arrays] = field(default_factory=dict)
    predictive: Arrays = field(default_factory=dict)
    before_rounding: Posterior | None = None

    @classmethod
    def first(
        cls, posterior: Posterior, clients: int, parts: Mapping[str, Arrays] | None = None
    ) -> ServerState:
        """Return the state before the first round, when no client has been pooled."""
        return cls(0, posterior, np.zeros(clients, np.int64), np.ones(clients), parts=parts or {})

    @property
    def num_clients(self) -> int:
        """The number K of clients."""
        return len(self.last_pooled)

    @property
    def unrounded(self) -> Posterior | None:
        """Pooled posterior, if the posterior is that but for rounding; otherwise None."""
        if self.before_rounding is None:
            return None
        for name in ("mean", "variance"):
            sent = getattr(self.posterior, name)
            with np.errstate(over="ignore"):  # what was clipped
                rounded = getattr(self.before_rounding, name).astype(sent.dtype)
            if not np.array_equal(rounded, sent):
                return None
        return self.before_rounding

    def check(self, manifest: Manifest | None) -> None:
        """Raise if it is nothing that another round can begin with.

        A pool has been checked; what moved it afterwards, and what the parts made of arrays that
        clients sent, has not.

        Raises:
            RunError: Naming the round and what is wrong.
        """
        try:
            self.posterior.check()
            if manifest:
                manifest.check(self.posterior)
        except PosteriorError as error:
            raise RunError(f"round {self.server_round}, after pooling: {error}") from error
        named = {"server-optimizer": self.server_optimizer, **self.parts}
        if problem := beyond_float32(named):
            raise RunError(
                f"round {self.server_round}: {problem}; clients may have sent too large ones"
            )

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all but the round and the posterior as arrays by name."""
        arrays: dict[str, npt.NDArray[Any]] = {_ROUNDS: self.last_pooled, _DAMPING: self.damping}
        if self.before_rounding is not None:
            arrays[f"{_UNROUNDED}mean"] = self.before_rounding.mean
            arrays[f"{_UNROUNDED}variance"] = self.before_rounding.variance
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
            last_pooled=np.asarray(arrays[_ROUNDS]),
            damping=np.asarray(arrays[_DAMPING]),
            server_optimizer=strip_prefix(_OPTIMIZER, arrays),
            parts=parts,
            predictive=strip_prefix(_PREDICTIVE, arrays),
            before_rounding=_unrounded(arrays),
        )


def _unrounded(arrays: Mapping[str, npt.NDArray[Any]]) -> Posterior | None:
    if f"{_UNROUNDED}mean" not in arrays:
        return None
    return Posterior(arrays[f"{_UNROUNDED}mean"], arrays[f"{_UNROUNDED}variance"], np.empty(0))


def beyond_float32(states: Mapping[str, Arrays]) -> str | None:
    """Return which array of which state cannot be sent to clients; None if all can."""
    for state, arrays in states.items():
        for name, array in arrays.items():
            # In float32, whatever they are kept in.
            if array.dtype.kind == "f" and not (np.abs(array) <= np.finfo(np.float32).max).all():
                return (
                    f"the state '{state}' holds values of '{name}' that are not finite in float32"
                )
    return None
