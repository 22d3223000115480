"""The client's half of a method's parts: their states taken up, and what they keep and send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt
from flwr.app import RecordDict

from bfl.errors import LostStateError, RunError, public
from bfl.federation.parts import Arrays, Part, Trained, check_concluded, check_received
from bfl.federation.wire import TrainTask, extra_arrays
from bfl.named_arrays import add_prefix, strip_prefix
from bfl.posteriors import Posterior
from clients.state import ClientState

_PREFIX, _OPTIMIZER = "part.", "optimizer."


class PartStates:
    """The states of a client's parts in one round, by the names of the states.

    Args:
        parts: The parts of the method.
        states: What each state holds as the round begins.
    """

    def __init__(self, parts: Sequence[Part], states: Mapping[str, Arrays]) -> None:
        self._parts = parts
        self._states = states

    @classmethod
    def of(
        cls, parts: Sequence[Part], kept: Arrays, task: TrainTask, received: Posterior
    ) -> PartStates:
        """Return the states that a round begins with.

        Args:
            parts: The parts of the method.
            kept: What the client kept in the last round that the server has pooled; nothing if
                there has been none.
            task: What the client is asked.
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
            mine = states[name] if name in states else strip_prefix(f"{_PREFIX}{name}.", kept)
            states[name] = part.commit(mine, task.damping)
        return cls(parts, states)

    def of_part(self, part: Part) -> Arrays:
        """Return the state of a part; nothing if it has none."""
        return self._states.get(part.client_state_name, {})

    def conclude(self, trained: Trained) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Return what the client sends besides its posterior, and what it keeps.

        Args:
            trained: What its training was and gave.

        Raises:
            ConfigurationError: A part sends or keeps what it has not declared.
        """
        sent: dict[str, Any] = {}
        kept: dict[str, npt.NDArray[Any]] = {}
        for part in self._parts:
            extras, state = part.conclude(self.of_part(part), trained)
            check_concluded(part, extras, state, trained.received)
            sent.update(extras)
            kept |= add_prefix(f"{_PREFIX}{part.client_state_name}.", state)
        return sent, kept


def received_extras(content: RecordDict, parts: Sequence[Part], received: Posterior) -> Arrays:
    """Return what the server has sent besides the posterior, as the method's parts declare it.

    Args:
        content: The message's content.
        parts: The parts of the method.
        received: The posterior in it, which gives the sizes.

    Raises:
        RunError: Something else has come.
    """
    try:
        arrays = extra_arrays(content)
    except Exception as error:  # whatever NumPy makes of bytes that the server has chosen
        raise public(RunError(f"the server has sent, besides the posterior: {error}")) from error
    check_received(parts, arrays, received)
    return arrays


def keeps_state(parts: Sequence[Part]) -> bool:
    """Return whether any part of a method keeps something on its clients."""
    return any(part.client_state_name for part in parts)


def taken_up(store: ClientState | None, task: TrainTask) -> Arrays:
    """Return what a client kept in the last round that was pooled; nothing without a store.

    Raises:
        LostStateError: It is gone, whether a part of the method kept it or the optimizer.
    """
    if store is None:
        return {}
    found = store.take_up(task.pooled_round, task.server_round)
    if found is None and task.pooled_round:
        lost = LostStateError(
            f"client {task.partition_id}: what it kept in round {task.pooled_round} is gone, and "
            "without it the client would not send what it would have sent; a SuperNode keeps it "
            "if its node configuration has a state-dir"
        )
        raise public(lost)
    return found or {}


def named_optimizer(state: Arrays) -> dict[str, npt.NDArray[Any]]:
    """Return the optimizer's arrays under the names by which they are kept."""
    return add_prefix(_OPTIMIZER, state)


def optimizer_arrays(kept: Arrays) -> dict[str, npt.NDArray[Any]]:
    """Return what the optimizer kept; nothing if it begins anew."""
    return strip_prefix(_OPTIMIZER, kept)
