"""Requests to the clients of a round, and what of an update the round cannot use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bfl.errors import RunError
from bfl.federation.parts import Arrays, Counts, DeclaredArray
from bfl.federation.wire import TRAIN
from bfl.posteriors import Posterior
from strategies.method import Method
from strategies.server_state import ServerState, beyond_float32
from strategies.updates import ClientUpdate, CombinedExtras, believed_numbers


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """Request to the clients of a round.

    Attributes:
        method: The parts that the round is made of.
        state: Where the federation stands before it.
        partition_ids: The selected clients, sorted.
        expected: A posterior of the sizes and types that they send back.
        vectors: The names of those of the posterior's vectors that they are sent.
        name: The round, in messages for people.
        broadcast: What they are sent besides the posterior.
        declared: What they have to send besides theirs.
        implausible: What was wrong with updates with which the round has been pooled before, by
            partition id; these clients are not asked again.
        sums_problem: Says what is wrong with a closing's sums over so many examples; None where
            posteriors are asked for.
    """

    method: Method
    state: ServerState
    partition_ids: Sequence[int]
    expected: Posterior
    vectors: Sequence[str]
    name: str
    message_type: str = TRAIN
    broadcast: Arrays = field(default_factory=dict)
    declared: tuple[DeclaredArray, ...] = ()
    implausible: Mapping[int, str] = field(default_factory=dict)
    sums_problem: Callable[[Posterior, int], str | None] | None = None

    @property
    def server_round(self) -> int:
        """The round, from 1."""
        return self.state.server_round + 1

    @property
    def posterior(self) -> Posterior:
        """The global posterior that is sent."""
        return self.state.posterior

    def problem(self, update: ClientUpdate) -> str | None:
        """Return why an update that is well formed is of no use in this round; None if it is."""
        method = self.method
        if self.sums_problem:
            return self.sums_problem(update.posterior, update.num_examples)
        if problem := method.weighting.unreported(believed_numbers(update.metrics)):
            return problem
        if method.pool_noise and (
            problem := method.pool_noise.problem(update.posterior, self.posterior)
        ):
            return problem
        return self._extras_problem(update.extras) if update.extras else None

    def _extras_problem(self, extras: Arrays) -> str | None:
        """Return why the arrays of one client, folded as if they were all, would end the run."""
        method, state = self.method, self.state
        counts = Counts(len(self.partition_ids), 1, state.num_clients, self.server_round)
        alone = CombinedExtras(self.declared)
        alone.add(extras, 1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            folded = method.fold(state.parts, alone.combined(), counts)
            problem = beyond_float32(folded)
            try:
                if not problem:
                    method.sent_extras(folded, state.posterior)
            except RunError as error:
                problem = str(error)
        return f"with the arrays besides the posterior {problem}" if problem else None


def training_request(
    method: Method, state: ServerState, partition_ids: Sequence[int]
) -> TrainingRequest:
    """Return what some clients are asked after a state, without what the parts send."""
    return TrainingRequest(
        method=method,
        state=state,
        partition_ids=partition_ids,
        expected=state.posterior,
        vectors=method.broadcast.vectors,
        name=f"round {state.server_round + 1}",
    )


def round_request(
    method: Method, state: ServerState, seed: int, implausible: Mapping[int, str]
) -> TrainingRequest:
    """Return what the clients of the round after a state are asked, sampled by (seed, round).

    Raises:
        RunError: What the parts would send has values that their declarations rule out.
    """
    selected = method.sampling.sample(seed, state.server_round + 1, state.num_clients)
    return replace(
        training_request(method, state, selected),
        broadcast=method.sent_extras(state.parts, state.posterior),
        declared=method.declared(state.posterior),
        implausible=dict(implausible),
    )
