"""A Strategy's arguments: the parts of its method, its clients' options, an application's help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from logging import WARNING
from typing import TYPE_CHECKING, Any

from bfl import errors
from bfl.aggregation import defences, refinements, samplers, server_optimizers, weightings
from bfl.aggregation.pooling import PoolingRule, pooling_rules
from bfl.engine.flower import log
from bfl.evaluation import predictives
from bfl.federation import broadcasts, exchanges
from bfl.federation import parts as two_sided
from bfl.federation.sampling import Sampling, samplings
from bfl.federation.wire import Positions
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.posterior import SCALE_FLOOR
from bfl.registry import Registry
from strategies.server_state import ServerState

if TYPE_CHECKING:
    from bfl.aggregation.server import Server
    from bfl.closing import Closing
    from bfl.configuration import Configuration
    from strategies.federation import Federation
    from strategies.privacy import PoolNoise
    from strategies.server_state import Round

PICKED: Mapping[str, Registry[Any]] = {
    "sampling": samplings,
    "pooling": pooling_rules,
    "weighting": weightings.weightings,
    "defence": defences.defences,
    "server_optimizer": server_optimizers.server_optimizers,
    "broadcast": broadcasts.broadcasts,
    "exchange": exchanges.exchanges,
    "refinement": refinements.refinements,
    "sampler": samplers.samplers,
    "predictive": predictives.predictives,
}
"""Registries of the kinds of parts of which the server has one, by the attributes of ``Method``."""


@dataclass(kw_only=True, eq=False, repr=False)
class GivenParts:
    """The parts that a Strategy is given, each by itself or by its name."""

    rule: PoolingRule | str | None = None
    weighting: weightings.Weighting | str = "train-size"
    defence: defences.Defence | str = "none"
    server_optimizer: server_optimizers.ServerOptimizer | str = "none"
    sampling: Sampling | str = "random"
    refinement: refinements.Refinement | str = "none"
    sampler: samplers.Sampler | str = "gaussian"
    broadcast: broadcasts.Broadcast | str = "posterior"
    exchange: exchanges.Exchange | str = "direct"
    parts: Sequence[two_sided.TwoSidedPart] = ()
    scale_floor: float = SCALE_FLOOR


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """Options of the clients: their number, what they are sent, how long they are waited for.

    Attributes:
        clients: The number of clients; 0: as many as there are SuperNodes.
        min_clients: How many of the selected clients have to send a usable posterior: below 1 a
            share of them, from 1 a number.
        round_retries: How often clients that fail or are lost are asked again, while fewer than
            these have replied (``flower_clients.exchange_with_retries``).
        node_timeout: Seconds to wait for all nodes before the first round.
        max_examples: The most examples that a client may claim to hold of its own.
        configuration: The configuration that clients of this package are sent a part of.
        num_classes: The number of classes, for the same.
        partition: The examples of each client by partition id, for the same; None where nodes have
            their own, and ``[None] * clients`` where those say which partition is theirs.
    """

    clients: int = 0
    min_clients: float = 0.5
    round_retries: int = 2
    node_timeout: float = 300.0
    max_examples: int = 1_000_000
    configuration: Configuration | None = None
    num_classes: int = 10
    partition: Sequence[Positions | None] | None = None


@dataclass(kw_only=True)
class RunSupport:
    """Help of an application around a Strategy: objects that it lends, and methods for its rounds.

    A plain Strategy needs nothing of it. An application overrides the methods that it needs: each
    is called by ``start``, in the order in which they stand here.

    Attributes:
        manifest: The parameters of the network, whose minima updates and pooled posteriors are held
            to, and whose moving statistics no server optimizer moves; None where the server does
            not know them.
        server: The server's own data and network, for a refinement or a weighting that needs them.
        predictive: What predicts besides the posterior.
        pool_noise: Noise on the pool, for differential privacy (``strategies.privacy``).
        closing: What clients add up over their data after the last round of ``start``.
        federation: The nodes, where they have been waited for already.
        state: The state from which the Strategy's own start goes on; None: the first round's.
        folder: The run's folder, for clients that keep a state in a simulation.
        key: The run's own word, by which nodes file what they keep.
        test_partition: The test examples of each client; None where clients evaluate nothing.
    """

    manifest: Manifest | None = None
    server: Server | None = None
    predictive: predictives.Predictive | str = "posterior"
    pool_noise: PoolNoise | None = None
    closing: Sequence[Closing | str] = ()
    federation: Federation | None = None
    state: ServerState | None = None
    folder: str = ""
    key: str = ""
    test_partition: Sequence[Positions | None] | None = None

    def warn(self, text: str) -> None:
        """Show what goes wrong with clients."""
        log(WARNING, text)

    def end_round(self, finished: Round) -> bool:
        """Take a round that is over; return whether it is the last."""
        return False

    def show_sums(self, line: str) -> None:
        """Show a line on a round of the closing's sums."""


@dataclass(frozen=True)
class Method:
    """A choice of each kind of part that the server has a hand in.

    The attributes are those of ``PosteriorPooling`` and ``RunSupport``, resolved.
    """

    sampling: Sampling
    pooling: PoolingRule
    weighting: weightings.Weighting
    defence: defences.Defence
    server_optimizer: server_optimizers.ServerOptimizer
    broadcast: broadcasts.Broadcast = field(default_factory=broadcasts.PosteriorBroadcast)
    exchange: exchanges.Exchange = field(default_factory=exchanges.Direct)
    scale_floor: float = SCALE_FLOOR
    refinement: refinements.Refinement = field(default_factory=refinements.NoRefinement)
    sampler: samplers.Sampler = field(default_factory=samplers.GaussianSampler)
    predictive: predictives.Predictive = field(default_factory=predictives.PosteriorPredictive)
    pool_noise: PoolNoise | None = None
    parts: tuple[two_sided.TwoSidedPart, ...] = ()
    closing: tuple[Closing, ...] = ()

    @classmethod
    def of(cls, configuration: Configuration) -> Method:
        """Return the method that a configuration picks."""
        return cls(
            **{name: getattr(configuration, name) for name in PICKED},
            scale_floor=configuration.keys.scale_floor,
            parts=configuration.parts,
            closing=configuration.closing,
        )

    @classmethod
    def of_parts(cls, **given: Any) -> Method:
        """Return the method of parts that are each given by its name or itself."""
        for name in ("closing", "parts"):
            if isinstance(given.get(name), str):
                problem = f"{name} is {given[name]!r}; allowed: a sequence of parts"
                raise errors.ConfigurationError(problem)
        parts = {
            name: PICKED[name].create(part) if isinstance(part, str) else part
            for name, part in given.items()
        }
        if closing := parts.get("closing", ()):
            from bfl.closing import closings

            closing = (closings.create(each) if isinstance(each, str) else each for each in closing)
        return cls(**{**parts, "parts": tuple(parts.get("parts", ())), "closing": tuple(closing)})

    @property
    def needs_models(self) -> bool:
        """True if a part needs the models of all clients of a round at once."""
        return self.refinement.needs_models or self.predictive.needs_models

    def first_state(self, posterior: Posterior, clients: int) -> ServerState:
        """Return the state before the first round, with what the parts begin with."""
        states: dict[str, two_sided.Arrays] = {}
        for part in self.parts:
            first = part.begin_server(posterior, clients)
            if first and not part.state_name:
                raise errors.ConfigurationError(
                    f"part '{part.name}' keeps {', '.join(first)} on the server and has no "
                    "state_name to keep it under"
                )
            if first:
                states[part.state_name] = {**states.get(part.state_name, {}), **first}
        return ServerState.first(posterior, clients, states)

    def broadcast_extras(
        self, states: Mapping[str, two_sided.Arrays], posterior: Posterior
    ) -> two_sided.Arrays:
        """Return what all clients of a round are sent besides the posterior.

        Raises:
            RunError: It is not what the parts declare, to which each client holds it as well.
        """
        sent: dict[str, Any] = {}
        for part in self.parts:
            arrays = part.broadcast(states.get(part.state_name, {}))
            _check_names_are_free(part, arrays, sent)
            if problem := two_sided.extras_problem(arrays, part.declared_broadcast(posterior)):
                raise errors.RunError(f"part '{part.name}' broadcasts {problem}")
            sent.update(arrays)
        return sent

    def declared_replies(self, posterior: Posterior) -> tuple[two_sided.DeclaredArray, ...]:
        """Return what every client sends besides its posterior; ``posterior`` gives the sizes."""
        declared: dict[str, two_sided.DeclaredArray] = {}
        for part in self.parts:
            named = {array.name: array for array in part.declared_replies(posterior)}
            _check_names_are_free(part, named, declared)
            declared.update(named)
        return tuple(declared.values())

    def update_server_states(
        self,
        states: Mapping[str, two_sided.Arrays],
        combined: two_sided.Arrays,
        counts: two_sided.Counts,
    ) -> dict[str, two_sided.Arrays]:
        """Return the parts' states after a round.

        A state that holds nothing stands nowhere, as in a checkpoint, and is updated all the same.
        """
        updated = dict(states)
        for part in self.parts:
            if part.state_name:
                before = updated.pop(part.state_name, {})
                if after := part.fold(before, combined, counts):
                    updated[part.state_name] = after
        return updated


def _check_names_are_free(
    part: two_sided.TwoSidedPart, names: Mapping[str, object], taken: Mapping[str, object]
) -> None:
    if both := sorted(names.keys() & taken.keys()):
        raise errors.ConfigurationError(
            f"part '{part.name}' has an array {both[0]} that another part has as well"
        )
