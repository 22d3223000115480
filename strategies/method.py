"""The parts that a round is made of on the server, each a named choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.aggregation.defences import Defence, defences
from bfl.aggregation.pooling import PoolingRule, pooling_rules
from bfl.aggregation.refinements import NoRefinement, Refinement, refinements
from bfl.aggregation.samplers import GaussianSampler, Sampler, samplers
from bfl.aggregation.server_optimizers import ServerOptimizer, server_optimizers
from bfl.aggregation.weightings import Weighting, weightings
from bfl.errors import ConfigurationError, RunError
from bfl.evaluation.predictives import PosteriorPredictive, Predictive, predictives
from bfl.federation.broadcasts import Broadcast, PosteriorBroadcast, broadcasts
from bfl.federation.exchanges import Direct, Exchange, exchanges
from bfl.federation.parts import Arrays, Counts, DeclaredArray, TwoSidedPart, extras_problem
from bfl.federation.sampling import Sampling, samplings
from bfl.posteriors import Posterior
from bfl.posteriors.posterior import SCALE_FLOOR
from bfl.registry import Component, Registry
from strategies.server_state import ServerState, beyond_float32

if TYPE_CHECKING:
    from bfl.closing import Closing
    from bfl.configuration import Configuration
    from bfl.learning.example_privacy import SumsNoise
    from strategies.privacy import PoolNoise

PICKED: Mapping[str, Registry[Any]] = {
    "sampling": samplings,
    "pooling": pooling_rules,
    "weighting": weightings,
    "defence": defences,
    "server_optimizer": server_optimizers,
    "broadcast": broadcasts,
    "exchange": exchanges,
    "refinement": refinements,
    "sampler": samplers,
    "predictive": predictives,
}
"""Registries of the kinds of parts of which the server has one, by the attributes of ``Method``."""


@dataclass(frozen=True)
class Method:
    """A choice of each kind of part that the server has a hand in.

    The attributes are those of ``PosteriorPooling``, resolved.
    """

    sampling: Sampling
    pooling: PoolingRule
    weighting: Weighting
    defence: Defence
    server_optimizer: ServerOptimizer
    broadcast: Broadcast = field(default_factory=PosteriorBroadcast)
    exchange: Exchange = field(default_factory=Direct)
    scale_floor: float = SCALE_FLOOR
    refinement: Refinement = field(default_factory=NoRefinement)
    sampler: Sampler = field(default_factory=GaussianSampler)
    predictive: Predictive = field(default_factory=PosteriorPredictive)
    pool_noise: PoolNoise | None = None
    parts: tuple[TwoSidedPart, ...] = ()
    closing: tuple[Closing, ...] = ()
    sums_noise: SumsNoise | None = None

    @classmethod
    def of(cls, configuration: Configuration) -> Method:
        """Return the method that a configuration picks."""
        return cls(
            **{name: getattr(configuration, name) for name in PICKED},
            scale_floor=configuration.keys.scale_floor,
            parts=configuration.parts,
            closing=configuration.closing,
            sums_noise=configuration.example_privacy.sums_noise,
        )

    @classmethod
    def of_parts(cls, **given: Any) -> Method:
        """Return the method of parts that are each given by its name or itself.

        Raises:
            ConfigurationError: There is no part of a name.
        """
        made = {
            name: PICKED[name].create(part) if isinstance(part, str) else part
            for name, part in given.items()
        }
        if chain := made.get("closing", ()):
            from bfl.closing import closings

            chain = (closings.create(each) if isinstance(each, str) else each for each in chain)
        return cls(**{**made, "parts": tuple(made.get("parts", ())), "closing": tuple(chain)})

    def picked(self) -> dict[str, Component]:
        """Return the parts of which there is one, by a configuration's attributes."""
        return {name: getattr(self, name) for name in PICKED}

    @property
    def needs_models(self) -> bool:
        """True if a part needs the models of all clients of a round at once."""
        return self.refinement.needs_models or self.predictive.needs_models

    def begin(self, posterior: Posterior, clients: int) -> dict[str, Arrays]:
        """Return the parts' states before the first round, by the names of the states.

        Raises:
            ConfigurationError: A part without the name of a state begins one.
        """
        states: dict[str, Arrays] = {}
        for part in self.parts:
            begun = part.begin_server(posterior, clients)
            if begun and not part.state_name:
                raise ConfigurationError(
                    f"part '{part.name}' keeps {', '.join(begun)} on the server and has no "
                    "state_name to keep it under"
                )
            if begun:
                states[part.state_name] = {**states.get(part.state_name, {}), **begun}
        return states

    def sent_extras(self, states: Mapping[str, Arrays], posterior: Posterior) -> Arrays:
        """Return what all clients of a round are sent besides the posterior.

        Raises:
            ConfigurationError: Two parts send an array of one name, or one sends what it has not
                declared.
            RunError: An array holds values that its part's declaration rules out.
        """
        sent: dict[str, object] = {}
        for part in self.parts:
            arrays = part.broadcast(states.get(part.state_name, {}))
            _refuse_taken(part, arrays, sent)
            if problem := extras_problem(arrays, part.declared_broadcast(posterior)):
                raise RunError(
                    f"part '{part.name}' broadcasts {problem}; its declared_broadcast rules it out"
                )
            sent.update(arrays)
        return sent  # type: ignore[return-value]

    def declared(self, posterior: Posterior) -> tuple[DeclaredArray, ...]:
        """Return what every client sends besides its posterior; ``posterior`` gives the sizes.

        Raises:
            ConfigurationError: Two parts declare an array of one name.
        """
        declared: dict[str, DeclaredArray] = {}
        for part in self.parts:
            named = {array.name: array for array in part.declared_replies(posterior)}
            _refuse_taken(part, named, declared)
            declared.update(named)
        return tuple(declared.values())

    def fold(
        self, states: Mapping[str, Arrays], combined: Arrays, counts: Counts
    ) -> dict[str, Arrays]:
        """Return the parts' states after a round.

        A state that holds nothing stands nowhere, as in a checkpoint, and is folded all the same.
        """
        folded = dict(states)
        for part in self.parts:
            if part.state_name:
                before = folded.pop(part.state_name, {})
                if after := part.fold(before, combined, counts):
                    folded[part.state_name] = after
        return folded

    def extras_problem(
        self, state: ServerState, extras: Arrays, declared: Sequence[DeclaredArray], asked: int
    ) -> str | None:
        """Return why the arrays of one client would end the run of all; None if they do not.

        They are folded as if they were the only ones.
        """
        alone = Counts(asked, 1, state.num_clients, state.server_round + 1)
        single = Combination(declared)
        single.add(extras, 1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            folded = self.fold(state.parts, single.combined(), alone)
            problem = beyond_float32(folded)
            try:
                if not problem:
                    self.sent_extras(folded, state.posterior)
            except RunError as error:
                problem = str(error)
        return f"with the arrays besides the posterior {problem}" if problem else None


class Combination:
    """The sums over the pooled clients; the memory does not grow with their number."""

    def __init__(self, declared: Sequence[DeclaredArray]) -> None:
        self._declared = declared
        self._sums: dict[str, npt.NDArray[np.float64]] = {
            array.name: np.zeros(array.shape) for array in declared
        }
        self._weight = 0.0

    def add(self, arrays: Arrays, weight: float) -> None:
        """Add what a client has sent, in float64.

        Args:
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


def _refuse_taken(
    part: TwoSidedPart, names: Mapping[str, object], taken: Mapping[str, object]
) -> None:
    both = sorted(names.keys() & taken.keys())
    if both:
        raise ConfigurationError(
            f"part '{part.name}' has an array {both[0]} that another part has as well"
        )
