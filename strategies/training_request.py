"""Request to the clients of a round, the checks of their updates, and the sums of their arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bfl.errors import RunError
from bfl.federation.exchanges import Exchange
from bfl.federation.parts import Arrays, Counts, DeclaredArray
from bfl.federation.wire import TRAIN
from bfl.posteriors import Posterior
from strategies.method import Method
from strategies.server_state import ServerState


class Combination:
    """The sums over the pooled clients; the memory does not grow with their number.

    Args:
        declared: The arrays that each client sends.
    """

    def __init__(self, declared: Sequence[DeclaredArray]) -> None:
        self._declared = declared
        self._sums: dict[str, npt.NDArray[np.float64]] = {
            array.name: np.zeros(array.shape) for array in declared
        }
        self._weight = 0.0

    def add(self, arrays: Arrays, weight: float) -> None:
        """Add what a client has sent, in float64.

        Args:
            arrays: The arrays, checked.
            weight: The client's weight in the pooling, in the scale of all others'.
        """
        self._weight += weight
        for array in self._declared:
            sent = arrays[array.name].astype(np.float64)
            self._sums[array.name] += sent if array.combined == "sum" else weight * sent

    def combined(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return the sum or the weighted mean of each array, by name.

        Raises:
            ValueError: A mean is asked for, and no client with a weight has been added.
        """
        if self._weight <= 0 and any(array.combined != "sum" for array in self._declared):
            raise ValueError("nothing to average: no client with a positive weight was added")
        return {
            array.name: self._sums[array.name]
            if array.combined == "sum"
            else self._sums[array.name] / self._weight
            for array in self._declared
        }


@dataclass(frozen=True)
class TrainingRequest:
    """Request to the clients of a round.

    Attributes:
        server_round: The round, from 1.
        partition_ids: Which clients are asked, sorted.
        posterior: The global posterior.
        vectors: The names of those of its vectors that they are sent.
        broadcast: What they are sent beside it.
        declared: What they have to send besides theirs.
        problem: Says what is wrong with a client's posterior beyond its form, given the number of
            its examples; None if nothing is.
        extras_problem: Says what is wrong with what a client has sent besides its posterior, given
            arrays that are as declared; None if nothing is.
        pooled_rounds: By partition id, the last round in which a client's update was pooled; 0:
            none yet.
        damping: By partition id, by how much that round's change was damped.
        exchange: How their updates travel.
        expected: A posterior of the sizes and types that they send back; None: of those sent.
        message_type: The type of the messages.
        called: The round, in messages for people.
    """

    server_round: int
    partition_ids: Sequence[int]
    posterior: Posterior
    vectors: Sequence[str]
    broadcast: Arrays
    declared: tuple[DeclaredArray, ...]
    problem: Callable[[Posterior, int], str | None]
    extras_problem: Callable[[Arrays], str | None]
    pooled_rounds: Mapping[int, int]
    damping: Mapping[int, float]
    exchange: Exchange
    expected: Posterior | None = None
    message_type: str = TRAIN
    called: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "called", self.called or f"round {self.server_round}")


def training_request(
    method: Method, state: ServerState, asked: Sequence[int], clients: int
) -> TrainingRequest:
    """Return what the clients of the round after a state are asked.

    Args:
        method: The parts that the round is made of.
        state: Where the federation stands.
        asked: Which clients are asked, sorted.
        clients: The number K of clients.

    Raises:
        RunError: What the parts would send has values that their declarations rule out.
    """
    number, declared = state.server_round + 1, method.declared(state.posterior)
    alone = Counts(len(asked), 1, clients, number)

    def problem(posterior: Posterior, examples: int) -> str | None:
        noise = method.pool_noise
        return noise.problem(posterior, state.posterior) if noise else None

    def extras_problem(extras: Arrays) -> str | None:
        # What one client has sent must not end the run of all: folded as if it were the only one.
        single = Combination(declared)
        single.add(extras, 1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            folded = method.fold(state.parts, single.combined(), alone)
            return beyond_float32(folded) or _unsendable(method, folded, state.posterior)

    return TrainingRequest(
        server_round=number,
        partition_ids=asked,
        posterior=state.posterior,
        vectors=method.broadcast.vectors,
        broadcast=method.sent_extras(state.parts, state.posterior),
        declared=declared,
        problem=problem,
        extras_problem=extras_problem,
        pooled_rounds={i: int(state.pooled_rounds[i]) for i in asked},
        damping={i: float(state.damping[i]) for i in asked},
        exchange=method.exchange,
    )


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


def _unsendable(method: Method, parts: Mapping[str, Arrays], posterior: Posterior) -> str | None:
    """Return why no client would take what the parts broadcast of their states; None if all do."""
    try:
        method.sent_extras(parts, posterior)
    except RunError as error:
        return str(error)
    return None
