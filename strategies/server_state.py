"""State that the server carries from round to round, and what it tells of a round that is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.aggregation.samplers import ClientModels
from bfl.archives import add_prefix, strip_prefix
from bfl.errors import PosteriorError, RunError
from bfl.federation.parts import Arrays
from bfl.posteriors import Manifest, Posterior

_ROUNDS, _DAMPING = "pooled-rounds", "damping"
_OPTIMIZER, _PARTS, _PREDICTIVE = "server-optimizer.", "part.", "predictive."
_UNROUNDED = "unrounded."


@dataclass(frozen=True)
class ServerState:
    """State of a federation after a round: one value, for checkpoints as it is.

    Attributes:
        server_round: The round that is over; 0 before the first.
        last_pooled: (K,) the last round in which each client's update was pooled; 0: none yet.
        damping: (K,) the share of the pooled step that was made in that round; 1: all.
        parts: What the parts keep, by the names of their states.
        unrounded: The posterior as it was pooled, in float64 and without point parameters; None
            unless the pooling rule ``keeps_unrounded``.
    """

    server_round: int
    posterior: Posterior
    last_pooled: npt.NDArray[np.int64]
    damping: npt.NDArray[np.float64]
    server_optimizer: Arrays = field(default_factory=dict)
    parts: Mapping[str, Arrays] = field(default_factory=dict)
    predictive: Arrays = field(default_factory=dict)
    unrounded: Posterior | None = None

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
    def unrounded_if_unmoved(self) -> Posterior | None:
        """The float64 pool, if the posterior is that but for rounding; otherwise None."""
        pool = self.unrounded
        for name in ("mean", "variance") if pool else ():
            sent = getattr(self.posterior, name)
            with np.errstate(over="ignore"):  # what was clipped
                rounded = getattr(pool, name).astype(sent.dtype)
            if not np.array_equal(rounded, sent):
                return None
        return pool

    def check(self, manifest: Manifest | None) -> None:
        """Raise RunError unless another round can begin with it.

        A pool has been checked; what moved it afterwards, and what the parts made of arrays that
        clients sent, has not.
        """
        try:
            self.posterior.check()
            if manifest:
                manifest.check(self.posterior)
        except PosteriorError as error:
            raise RunError(f"round {self.server_round}, after pooling: {error}") from error
        for part, arrays in {"server-optimizer": self.server_optimizer, **self.parts}.items():
            for name, array in arrays.items():
                # In float32, whatever they are kept in.
                largest = np.finfo(np.float32).max
                if array.dtype.kind == "f" and not (np.abs(array) <= largest).all():
                    raise RunError(
                        f"round {self.server_round}: the state '{part}' holds values of '{name}' "
                        "that are not finite in float32; clients may have sent too large ones"
                    )

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all but the round and the posterior as arrays by name."""
        arrays: dict[str, npt.NDArray[Any]] = {
            _ROUNDS: self.last_pooled,
            _DAMPING: self.damping,
            **add_prefix(_OPTIMIZER, self.server_optimizer),
            **add_prefix(_PREDICTIVE, self.predictive),
        }
        if self.unrounded is not None:
            arrays[f"{_UNROUNDED}mean"] = self.unrounded.mean
            arrays[f"{_UNROUNDED}variance"] = self.unrounded.variance
        for part, state in self.parts.items():
            arrays |= add_prefix(f"{_PARTS}{part}.", state)
        return arrays

    @classmethod
    def from_arrays(
        cls, server_round: int, posterior: Posterior, arrays: Mapping[str, npt.NDArray[Any]]
    ) -> ServerState:
        """Return the state whose ``to_arrays`` this is; KeyError: an array is missing."""
        parts: dict[str, dict[str, npt.NDArray[Any]]] = {}
        for key, array in strip_prefix(_PARTS, arrays).items():
            part, name = key.split(".", maxsplit=1)
            parts.setdefault(part, {})[name] = array
        pool = strip_prefix(_UNROUNDED, arrays)
        return cls(
            server_round=server_round,
            posterior=posterior,
            last_pooled=np.asarray(arrays[_ROUNDS]),
            damping=np.asarray(arrays[_DAMPING]),
            server_optimizer=strip_prefix(_OPTIMIZER, arrays),
            parts=parts,
            predictive=strip_prefix(_PREDICTIVE, arrays),
            unrounded=Posterior(**pool, point=np.empty(0)) if pool else None,
        )


@dataclass(frozen=True)
class Round:
    """A round that is over.

    Attributes:
        state: Where the federation stands after it, with the global posterior.
        metrics: What clients and pooling have measured, and what was evaluated.
        clients: One entry for each client pooled, see ``strategies.round.client_entry``.
        models: The clients' models, while the round is refined.
        left_out: One for each client that was selected and is not in the pool: ``client``, the
            partition id, its ``name`` and the ``reason``.
        farthest: Whose values were farthest from the other clients', and how far, where known.
        seconds: How long training and pooling took.
    """

    state: ServerState
    metrics: Mapping[str, Any]
    clients: Sequence[Mapping[str, Any]] = ()
    models: ClientModels | None = None
    left_out: Sequence[Mapping[str, Any]] = ()
    farthest: str = ""
    seconds: float = 0.0

    @property
    def number(self) -> int:
        """The round, from 1."""
        return self.state.server_round

    @property
    def posterior(self) -> Posterior:
        """The global posterior after the round."""
        return self.state.posterior
