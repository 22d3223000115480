"""The options of a round on the server: what each refuses, and does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bfl.aggregation.pooling import CLIPPED
from bfl.aggregation.precision_spread import PrecisionSpread
from bfl.aggregation.samplers import ClientModels
from bfl.aggregation.server import RoundContext
from bfl.aggregation.server_optimizers import StepContext
from bfl.engine.resources import available_memory
from bfl.errors import ConfigurationError, NotFiniteError, PosteriorError, RunError
from bfl.federation.parts import Arrays, Counts, DeclaredArray
from bfl.posteriors import Posterior
from strategies.privacy import PoolNoise
from strategies.server_state import PooledRound, beyond_float32
from strategies.updates import ClientUpdate

if TYPE_CHECKING:
    from bfl.configuration import Configuration
    from bfl.posteriors import Manifest
    from strategies.flower_clients import FlowerClients
    from strategies.method import Method
    from strategies.round import OpenRound

WORKING_VECTORS = 8
"""Vectors over all parameters that the server holds besides the clients' models, in float64."""


@dataclass(frozen=True)
class Planned:
    """Everything that is known of a federation's rounds before the first.

    Attributes:
        posterior: What the first round begins with.
        configuration: What clients are sent a part of; None: they are sent none.
        manifest: The parameters of the network, where the server knows them.
        keeps_rounds: Whether a round is kept on the disk between pooling and refining.
        warn: Told what a person should know, and is no reason to refuse.
    """

    method: Method
    posterior: Posterior
    configuration: Configuration | None
    manifest: Manifest | None
    clients: FlowerClients
    rounds: int
    seed: int
    keeps_rounds: bool
    warn: Callable[[str], None]

    def asked(self, rounds: int) -> dict[int, list[int]]:
        """Return who is asked in each of the first rounds, by its number."""
        sample = self.method.sampling.sample
        size = self.clients.size
        return {number: sample(self.seed, number, size) for number in range(1, max(rounds, 1) + 1)}


class ServerOption:
    """Something that a round does on the server besides pooling where a method asks for it.

    The functions are called in this order, each of the first of a round's options first; one that
    is not overridden does nothing.
    """

    def check(self, planned: Planned) -> None:
        """Refuse, before anybody trains, rounds in which this cannot be done.

        Raises:
            ConfigurationError: Naming why.
        """

    def begin(self, opened: OpenRound) -> None:
        """Add to what clients are asked."""

    def coming(self, opened: OpenRound, updates: Iterator[ClientUpdate]) -> Iterator[ClientUpdate]:
        """Return the updates that are pooled in place of those that come."""
        return updates

    def add(self, update: ClientUpdate, weight: float) -> None:
        """Note an update as it is pooled, and its weight, whose scale is the same for all."""

    def conclude(self, opened: OpenRound) -> None:
        """Make of the pool what the round leads to."""

    def refine(self, opened: OpenRound, pooled: PooledRound) -> PooledRound:
        """Return what becomes of the pooled round, which an interrupted server may have left."""
        return pooled


class Unpacks(ServerOption):
    """An exchange that packs updates."""

    def begin(self, opened: OpenRound) -> None:
        """Have updates unpacked."""
        opened.request.unpack = opened.method.exchange.unpack


class MeasuresSpread(ServerOption):
    """The spread of clients' variances, for a rule that pools by precisions."""

    def begin(self, opened: OpenRound) -> None:
        """Begin with no client."""
        self._spread = PrecisionSpread()

    def add(self, update: ClientUpdate, weight: float) -> None:
        """Add a client."""
        self._spread.add(update.posterior, weight)

    def conclude(self, opened: OpenRound) -> None:
        """Record what was measured."""
        opened.metrics |= self._spread.metrics(opened.state.posterior, opened.posterior)


class NoisesPool(ServerOption):
    """Privacy's noise on the pool.

    It comes before the server's step and the floor: what is made of the noised pool is no further
    release.
    """

    def __init__(self, noise: PoolNoise) -> None:
        self._noise = noise

    def begin(self, opened: OpenRound) -> None:
        """Have updates refused that the noise would not hide."""
        noise, previous = self._noise, opened.state.posterior
        opened.request.problems.append(lambda update: noise.problem(update.posterior, previous))

    def coming(self, opened: OpenRound, updates: Iterator[ClientUpdate]) -> Iterator[ClientUpdate]:
        """Return updates whose pool is not rounded before its noise, if the server adds any.

        To round it would let a client move it further than by its update.
        """
        if not self._noise.draws:
            return updates
        return (replace(each, posterior=_in_float64(each.posterior)) for each in updates)

    def conclude(self, opened: OpenRound) -> None:
        """Add the noise; the record has nothing that was counted of the pool before it."""
        opened.posterior = self._noise(opened.posterior, opened.state.posterior, opened.counts)
        opened.metrics.pop(CLIPPED, None)


def _in_float64(posterior: Posterior) -> Posterior:
    return Posterior(**{name: v.astype(np.float64) for name, v in posterior.vectors().items()})


class MovesPool(ServerOption):
    """A server optimizer, which makes another step of the one to the pool."""

    def check(self, planned: Planned) -> None:
        """Warn of steps that take moving statistics for weights.

        Without a manifest nobody knows which point parameters training moves by their gradient.
        """
        if (points := planned.posterior.point.size) and not planned.manifest:
            planned.warn(
                f"server-optimizer '{planned.method.server_optimizer.name}' moves all {points} "
                "point parameters, and could lead a moving variance of batch normalisation below "
                "0: this Strategy has no manifest, which would say what are moving statistics; "
                "give it as manifest (bfl.posteriors.Manifest) if the network has some"
            )

    def conclude(self, opened: OpenRound) -> None:
        """Make the step."""
        state, manifest, counts = opened.state, opened.manifest, opened.counts
        opened.changes["server_optimizer"], opened.posterior = opened.method.server_optimizer.apply(
            state.server_optimizer,
            state.posterior,
            opened.posterior,
            StepContext(counts.server_round, counts.asked, counts.pooled, opened.combined),
            moves_point=manifest.trainable_points if manifest else None,
        )


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


class FoldsParts(ServerOption):
    """The server half of the method's parts."""

    def begin(self, opened: OpenRound) -> None:
        """Send what the parts broadcast, and ask for what they declare.

        Raises:
            RunError: What they would send has values that their declarations rule out.
        """
        method, state, request = opened.method, opened.state, opened.request
        self._declared = request.declared = method.declared(state.posterior)
        self._combination = Combination(self._declared)
        request.broadcast = method.sent_extras(state.parts, state.posterior)
        request.problems.append(lambda update: self._problem(opened, update.extras))

    def _problem(self, opened: OpenRound, extras: Arrays) -> str | None:
        """Return why what one client has sent would end the run of all; None if it does not."""
        if not extras:
            return None
        method, state, request = opened.method, opened.state, opened.request
        alone = Counts(len(request.partition_ids), 1, state.num_clients, request.server_round)
        single = Combination(self._declared)
        single.add(extras, 1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            folded = method.fold(state.parts, single.combined(), alone)
            problem = beyond_float32(folded)
            try:
                if not problem:
                    method.sent_extras(folded, state.posterior)
            except RunError as error:
                problem = str(error)
        return f"with the arrays besides the posterior {problem}" if problem else None

    def add(self, update: ClientUpdate, weight: float) -> None:
        """Add what a client has sent besides its posterior."""
        self._combination.add(update.extras, weight)

    def conclude(self, opened: OpenRound) -> None:
        """Fold the sums into the parts' states."""
        opened.combined = combined = self._combination.combined()
        opened.changes["parts"] = opened.method.fold(opened.state.parts, combined, opened.counts)


class RefinesPool(ServerOption):
    """A refinement of the pool, and models that predict besides it.

    A round may be kept between the two, so that a kill costs no training.
    """

    def check(self, planned: Planned) -> None:
        """Raise if the models of all clients of a round are needed and do not fit in memory.

        Raises:
            ConfigurationError: Saying how much is needed and how much there is.
        """
        method, posterior = planned.method, planned.posterior
        if not method.needs_models:
            return
        parameters = posterior.size + posterior.point.size
        model = sum(vector.nbytes for vector in posterior.vectors().values())
        # A predictive keeps all models in arrays of their own, besides those that were sent and
        # those that it has from the round before. A round that is kept has them in arrays and in
        # the file that is put together, which has those of the round before as well.
        predicts = int(method.predictive.needs_models)
        saved = planned.keeps_rounds and method.refinement.keeps_pooled_round
        copies = 3 + 2 * predicts if saved else 1 + 2 * predicts
        most = max(map(len, planned.asked(1).values()))
        needed = copies * most * model + WORKING_VECTORS * 8 * parameters
        if needed > (free := available_memory()):
            parts = [p.name for p in (method.refinement, method.predictive) if p.needs_models]
            raise ConfigurationError(
                f"{' and '.join(parts)} need the models of all {most} clients of a round at once, "
                f"{needed / 1e9:.1f} GB with {parameters:,} parameters, and there are "
                f"{free / 1e9:.1f} GB; allowed: fewer clients a round (fraction-train), a smaller "
                "model, or neither"
            )

    def begin(self, opened: OpenRound) -> None:
        """Take up the round that an interrupted server has pooled, if there is one."""
        method = opened.method
        self._models: list[ClientUpdate] | None = [] if method.needs_models else None
        self._keeps = opened.unfinished if method.refinement.keeps_pooled_round else None
        if self._keeps:
            opened.taken_up = self._keeps.after(opened.state, opened.manifest)

    def add(self, update: ClientUpdate, weight: float) -> None:
        """Keep a client's model, where all are needed at once."""
        if self._models is not None:
            self._models.append(update)

    def refine(self, opened: OpenRound, pooled: PooledRound) -> PooledRound:
        """Return the pooled round, refined.

        Raises:
            RunError: It cannot be refined, or what it is refined to is no posterior.
        """
        if opened.taken_up is None:
            pooled = replace(pooled, models=self._client_models(opened, pooled))
            if self._keeps:
                self._keeps.save(opened.state, pooled)
        try:
            return self._refined(opened, pooled)
        except RunError:
            if self._keeps:  # a resume would meet the same: its clients train again
                self._keeps.clear()
            raise

    def _refined(self, opened: OpenRound, pooled: PooledRound) -> PooledRound:
        method = opened.method
        used = opened.parametrization.used_variance
        context = RoundContext(
            seed=opened.seed,
            server_round=pooled.state.server_round,
            previous=opened.state.posterior,
            pooled=pooled.state.posterior,
            sampler=method.sampler,
            clients=pooled.models.computing_with(used) if pooled.models else None,
            server=opened.server,
        )
        try:
            refined = method.refinement.refine(context)
        except (NotFiniteError, PosteriorError) as error:
            raise RunError(
                f"round {context.server_round}, refinement '{method.refinement.name}': {error}; "
                "the clients' values, or the refinement's own steps, are too large for the network"
            ) from error
        kept = method.predictive.keep(context)
        following = replace(pooled.state, posterior=refined.posterior, predictive=kept)
        following.check(opened.manifest)
        return replace(pooled, state=following, metrics={**pooled.metrics, **refined.metrics})

    def _client_models(self, opened: OpenRound, pooled: PooledRound) -> ClientModels | None:
        if not self._models:
            return None
        return ClientModels(
            posteriors=tuple(update.posterior for update in self._models),
            partition_ids=tuple(update.partition_id for update in self._models),
            num_examples=tuple(update.num_examples for update in self._models),
            previous=opened.state.posterior,
            average=pooled.state.posterior,
            manifest=opened.manifest,
        )
