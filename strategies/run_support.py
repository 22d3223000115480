"""The things that an application around a Strategy lends it, and those that a round gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bfl.federation.wire import Positions
from bfl.posteriors import Posterior
from strategies.federation import Federation
from strategies.server_state import ServerState


def _nothing_evaluated(state: ServerState) -> Mapping[str, float]:
    return {}


def _not_told(number: int, numbers: Mapping[str, float]) -> None:
    pass


def _not_asked(release: str) -> None:
    pass


def _itself(last: Posterior) -> Posterior:
    return last


@dataclass(frozen=True, kw_only=True)
class RunSupport:
    """The things that an application around a Strategy lends it; a plain one needs none of them.

    Attributes:
        federation: The nodes, where they have been waited for already.
        state: The state to go on from; None: before the first round.
        folder: The run's folder, for clients that keep a state in a simulation.
        key: The run's own word, by which nodes file what they keep.
        test_partition: The test examples of each client; None where clients do not evaluate.
        evaluate_models: Evaluates the predictive's models after a round; its numbers stand in the
            round's metrics.
        to_close: Gives the posterior whose network the closing finishes, of the last one.
        before_sums: Called with a word for each round of the closing's sums, before anybody is
            asked.
        on_sums: Called with the number of each round of the closing's sums, and its numbers.
    """

    federation: Federation | None = None
    state: ServerState | None = None
    folder: str = ""
    key: str = ""
    test_partition: Sequence[Positions | None] | None = None
    evaluate_models: Callable[[ServerState], Mapping[str, float]] = _nothing_evaluated
    to_close: Callable[[Posterior], Posterior] = _itself
    before_sums: Callable[[str], None] = _not_asked
    on_sums: Callable[[int, Mapping[str, float]], None] = _not_told


@dataclass(frozen=True)
class Round:
    """The outcome of one round, for whoever looks on.

    Attributes:
        state: Where the federation stands after it, with the global posterior.
        metrics: What clients and pooling have measured, and what was evaluated.
        seconds: How long training and pooling took.
        clients: One entry for each client pooled, see ``strategies.pool_updates``.
    """

    state: ServerState
    metrics: dict[str, float]
    seconds: float
    clients: Sequence[Mapping[str, Any]] = ()

    @property
    def number(self) -> int:
        """The round, from 1."""
        return self.state.server_round

    @property
    def posterior(self) -> Posterior:
        """The global posterior after the round."""
        return self.state.posterior
