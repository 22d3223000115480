"""The parts that a round is made of on the server, each a named choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from bfl.aggregation.defences import Defence, defences
from bfl.aggregation.pooling import PoolingRule, pooling_rules
from bfl.aggregation.refinements import Refinement, refinements
from bfl.aggregation.refinements.none import NoRefinement
from bfl.aggregation.samplers import Sampler, samplers
from bfl.aggregation.samplers.gaussian import GaussianSampler
from bfl.aggregation.server_optimizers import ServerOptimizer, server_optimizers
from bfl.aggregation.weightings import Weighting, weightings
from bfl.closing import Closing, closings
from bfl.configuration import Configuration
from bfl.configuration.kinds import KINDS
from bfl.errors import ConfigurationError
from bfl.evaluation.predictives import Predictive, predictives
from bfl.evaluation.predictives.posterior import PosteriorPredictive
from bfl.federation.broadcasts import Broadcast, broadcasts
from bfl.federation.broadcasts.posterior import PosteriorBroadcast
from bfl.federation.exchanges import Exchange, exchanges
from bfl.federation.exchanges.direct import Direct
from bfl.federation.parts import Arrays, Counts, DeclaredArray, Part, check_broadcast
from bfl.federation.sampling import Sampling, samplings
from bfl.posteriors import Posterior
from bfl.posteriors.floor import SCALE_FLOOR
from bfl.registry import Component, Registry
from strategies.privacy import PoolNoise

C = TypeVar("C", bound=Component)


@dataclass(frozen=True)
class Method:
    """A choice of each kind of part that the server has a hand in.

    Attributes:
        sampling: Who takes part in a round.
        pooling: How the clients' posteriors become one.
        weighting: How much each client counts in it.
        defence: What is done to the clients' posteriors before.
        server_optimizer: What becomes of the step to the pool.
        broadcast: What of the global posterior clients are sent.
        exchange: How clients' updates reach the pool.
        scale_floor: The least standard deviation of the posterior that comes out; 0: none.
        refinement: What the server does beyond pooling.
        sampler: The distribution that an ensemble's samples are from.
        predictive: What predicts, beside the posterior, when it is judged.
        pool_noise: What is done to the pool, of (pooled, previous, counts); None for nothing.
        parts: Those with a half on either side, in the order in which the server folds them.
        closing: What clients add up over their data after the last round.
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
    parts: tuple[Part, ...] = ()
    closing: tuple[Closing, ...] = ()

    @classmethod
    def of(cls, configuration: Configuration) -> Method:
        """Return the method that a configuration picks."""
        return cls(
            **{name: getattr(configuration, name) for name in cls._kinds()},
            scale_floor=configuration.keys.scale_floor,
            parts=configuration.parts,
            closing=configuration.closing,
        )

    @classmethod
    def of_parts(
        cls,
        rule_class: type[PoolingRule] | None = None,
        *,
        rule: PoolingRule | str | None = None,
        weighting: Weighting | str = "train-size",
        defence: Defence | str = "none",
        sampling: Sampling | str = "random",
        server_optimizer: ServerOptimizer | str = "none",
        broadcast: Broadcast | str = "posterior",
        exchange: Exchange | str = "direct",
        refinement: Refinement | str = "none",
        sampler: Sampler | str = "gaussian",
        predictive: Predictive | str = "posterior",
        pool_noise: PoolNoise | None = None,
        parts: Sequence[Part] = (),
        closing: Sequence[Closing | str] = (),
        scale_floor: float = SCALE_FLOOR,
        **rule_settings: Any,
    ) -> Method:
        """Return the method of parts that are each given by its name or itself.

        Args:
            rule_class: The pooling rule of a Strategy that has its own.
            rule: The pooling rule; by default the Strategy's own, with ``rule_settings``.
            weighting: What the clients' weights are.
            defence: What is done to the clients' posteriors before; by default nothing.
            sampling: Who takes part in a round; by default all.
            server_optimizer: What becomes of the step to the pool; by default nothing.
            broadcast: What of the global posterior clients are sent; by default all.
            exchange: How clients' updates reach the pool; by default as they are.
            refinement: What the server does beyond pooling; by default nothing.
            sampler: The distribution that an ensemble's samples are from.
            predictive: What predicts beside the posterior; by default nothing.
            pool_noise: What is done to the pool, of (pooled, previous, counts); by default nothing.
            parts: Parts of the method with a half on either side.
            closing: What clients add up over their data after the last round; by default nothing.
            scale_floor: The least standard deviation of a pooled posterior; 0: none.
            rule_settings: Settings of the pooling rule, where it is not given by itself.

        Raises:
            TypeError: There is no rule, or a rule that is given by itself and settings of one.
            ConfigurationError: There is no part of a name.
        """
        return cls(
            pooling=_rule(rule_class, rule, rule_settings),
            weighting=_part(weightings, weighting),
            defence=_part(defences, defence),
            sampling=_part(samplings, sampling),
            server_optimizer=_part(server_optimizers, server_optimizer),
            broadcast=_part(broadcasts, broadcast),
            exchange=_part(exchanges, exchange),
            refinement=_part(refinements, refinement),
            sampler=_part(samplers, sampler),
            predictive=_part(predictives, predictive),
            pool_noise=pool_noise,
            parts=tuple(parts),
            closing=tuple(_part(closings, each) for each in closing),
            scale_floor=scale_floor,
        )

    def picked(self) -> dict[str, Component]:
        """Return the parts of which there is one, by a configuration's attributes."""
        return {name: getattr(self, name) for name in self._kinds()}

    @classmethod
    def _kinds(cls) -> list[str]:
        """Return the fields that are kinds of parts, of which there is one."""
        kinds = {kind.attribute for kind in KINDS if not kind.chain}
        return [declared.name for declared in fields(cls) if declared.name in kinds]

    @property
    def needs_models(self) -> bool:
        """Whether a part needs the models of all clients of a round at once."""
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

    def sent_beside(self, states: Mapping[str, Arrays], posterior: Posterior) -> Arrays:
        """Return what all clients of a round are sent beside the posterior.

        Raises:
            ConfigurationError: Two parts send an array of one name, or one sends what it has not
                declared.
            RunError: An array holds values that its part's declaration rules out.
        """
        sent: dict[str, object] = {}
        for part in self.parts:
            arrays = part.broadcast(states.get(part.state_name, {}))
            _refuse_taken(part, arrays, sent)
            check_broadcast(part, arrays, posterior)
            sent.update(arrays)
        return sent  # type: ignore[return-value]

    def declared(self, posterior: Posterior) -> tuple[DeclaredArray, ...]:
        """Return what every client sends beside its posterior; ``posterior`` gives the sizes.

        Raises:
            ConfigurationError: Two parts declare an array of one name.
        """
        declared: dict[str, DeclaredArray] = {}
        for part in self.parts:
            named = {array.name: array for array in part.replies(posterior)}
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


def _rule(
    own: type[PoolingRule] | None, given: PoolingRule | str | None, settings: Mapping[str, Any]
) -> PoolingRule:
    """Return the rule that was given, or named, or that a Strategy stands for."""
    if isinstance(given, PoolingRule):
        if settings:
            raise TypeError(f"unexpected arguments: {', '.join(settings)}")
        return given
    cls = own if given is None else pooling_rules.get(given)
    if cls is None:
        raise TypeError("PosteriorPooling needs a rule; its named subclasses have theirs")
    return cls(**settings)


def _part(registry: Registry[C], given: C | str) -> C:
    """Return a part that is given by itself or by its name."""
    return registry.create(given) if isinstance(given, str) else given


def _refuse_taken(part: Part, names: Mapping[str, object], taken: Mapping[str, object]) -> None:
    both = sorted(names.keys() & taken.keys())
    if both:
        raise ConfigurationError(
            f"part '{part.name}' has an array {both[0]} that another part has as well"
        )
