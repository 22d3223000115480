"""Chain that an update passes on its way out; ``clip+noise``: differential privacy of clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from bfl.federation.parts import Counts
from bfl.federation.privacy import (
    EPSILON,
    NO_BUDGET,
    Array,
    Mechanism,
    Normals,
    add_difference,
    difference,
    gaussian_epsilon,
    noise_multiplier_for,
)
from bfl.posteriors import Posterior
from bfl.registry import Component, Registry

CLIPPED_UPDATES = "clipped-updates"
"""The property of a part that bounds the length of differences."""

ROUNDINGS = 8
"""The most times that a difference is shortened which rounding has led out of a bound."""

INSIDE = 1.0 - 2.0**-40
"""Factor that keeps rounding from leading out of the bound again."""

SENSITIVITY = {"replace": 2.0, "zero-out": 1.0}
"""Distance that a clipped difference can move between two neighbours, in units of the clip norm."""


class Outgoing(Component, ABC):
    """Change of an update's ``difference`` from what was received, or of the clients' pool.

    Attributes:
        stage: No part stands behind one of a later stage in a chain.
        lengthens: Whether it may make a difference longer; privacy rests on a bounded length.
    """

    stage: ClassVar[int] = 0
    lengthens: ClassVar[bool] = True

    @property
    def active(self) -> bool:
        """True if it does anything, as it is set."""
        return True

    @property
    def private(self) -> bool:
        """True if nothing but the chain's output may leave a client: no number it measured."""
        return False

    @property
    def draws(self) -> bool:
        """True if ``change`` draws random numbers."""
        return False

    @property
    def draws_on_pool(self) -> bool:
        """True if ``change_pool`` draws random numbers."""
        return False

    def mechanism(self) -> Mechanism | None:
        """Return what an account uses; None: there is no noise, and no ε."""
        return None

    @abstractmethod
    def change(self, difference: Array, normals: Normals) -> Array:
        """Return what a client's difference (2 D + P,) becomes: that very array if it stays."""

    def holds(self, difference: Array) -> bool:
        """Return whether the part's result, rounded, is still within the part's bound."""
        return True

    def change_pool(self, difference: Array, counts: Counts, normals: Normals) -> Array:
        """Return what the pool's difference from the previous posterior becomes, on the server."""
        return difference


outgoing_parts: Registry[Outgoing] = Registry("outgoing", "bfl.federation.outgoing")


def change_update_by(
    chain: Sequence[Outgoing], learned: Posterior, received: Posterior, normals: Normals
) -> Posterior:
    """Return what a client that has received a posterior sends of what it has learned.

    What no part changes is what was learned, bit for bit. Noise is added in float64, before the one
    rounding to the type of what was received. Without noise, the rounding is kept from leading out
    of what the chain gives: where that takes more than a percent of it, nothing new is sent.
    """
    active = [part for part in chain if part.active]
    if not active:
        return learned
    before = difference(received, learned)
    if is_private(chain) and not np.isfinite(before).all():
        # That training has diverged says something of the data, too.
        before = np.zeros_like(before)
        learned = received
    after = before
    for part in active:
        after = part.change(after, normals)
    if after is before:
        return learned
    rounded = add_difference(received, after)
    if any(part.draws for part in chain):
        return rounded
    for number in range(ROUNDINGS):
        there = difference(received, rounded)
        if all(part.holds(there) for part in active):
            return rounded
        after = after * (1.0 - 2.0 ** (2 * number - 20))
        rounded = add_difference(received, after)
    return received


def change_pool_by(
    chain: Sequence[Outgoing],
    pooled: Posterior,
    previous: Posterior,
    counts: Counts,
    normals: Normals,
) -> Posterior:
    """Return what the server makes of the pool: that very posterior if no part changes it."""
    active = [part for part in chain if part.active]
    if not active:
        return pooled
    before = after = difference(previous, pooled)
    for part in active:
        after = part.change_pool(after, counts, normals)
    return pooled if after is before else add_difference(previous, after)


def is_private(chain: Sequence[Outgoing]) -> bool:
    """Return whether clients send nothing that they have measured; see ``Outgoing.private``."""
    return any(part.private for part in chain)


def order_problem(chain: Sequence[Outgoing]) -> str:
    """Return what is wrong with the order of a chain, for people; empty: nothing."""
    ordered = sorted(chain, key=lambda part: part.stage)
    if ordered == list(chain):
        return ""
    return f"outgoing is '{_names(chain)}', in another order; allowed: '{_names(ordered)}'"


def length_problem(chain: Sequence[Outgoing]) -> str:
    """Return which part may undo the bound that noise rests on, for people; empty: none does.

    Behind the clipping no part may make a difference longer.
    """
    active = [part for part in chain if part.active]
    if not any(CLIPPED_UPDATES in part.requires() for part in active):
        return ""
    clip: Outgoing | None = None
    for part in active:
        if clip and part.lengthens and not (part.draws or part.draws_on_pool):
            return (
                f"outgoing is '{_names(chain)}', where '{part.name}' stands behind '{clip.name}' "
                "and does not say that it makes no difference longer (lengthens = False), so that "
                f"noise could not know how long one is; allowed: '{part.name}' before "
                f"'{clip.name}', or a chain without it"
            )
        clip = clip or (part if CLIPPED_UPDATES in part.has() else None)
    return ""


def _names(chain: Sequence[Outgoing]) -> str:
    return "+".join(part.name for part in chain)


@outgoing_parts.register("none")
class AsLearned(Outgoing):
    """Clients send what they have learned."""

    lengthens = False
    active: ClassVar[bool] = False
    private: ClassVar[bool] = False

    def change(self, difference: Array, normals: Normals) -> Array:
        """Return the difference."""
        return difference


ClipNorm = Annotated[
    float,
    Field(
        gt=0.0,
        le=1e6,
        description="greatest L2 norm C of an update's difference in means, points and log σ",
    ),
]


@outgoing_parts.register("clip")
class Clip(Outgoing):
    """Δ min(1, C / ‖Δ‖₂), of means, points and log σ together.

    Source: McMahan et al. (2018), "Learning differentially private recurrent language models",
    section 2, flat clipping.
    """

    stage = 1
    lengthens = False

    clip_norm: ClipNorm = 1.0

    def has(self) -> frozenset[str]:
        """Return that what follows knows how large a difference can be."""
        return frozenset({CLIPPED_UPDATES})

    def holds(self, difference: Array) -> bool:
        """Return whether the norm is at most ``clip_norm``."""
        return float(np.linalg.norm(difference)) <= self.clip_norm

    def change(self, difference: Array, normals: Normals) -> Array:
        """Return the difference with a norm of at most ``clip_norm``."""
        norm = float(np.linalg.norm(difference))
        # What is not finite stays so, for the checks to find.
        if not norm > self.clip_norm or not np.isfinite(norm):
            return difference
        return difference * (self.clip_norm / norm * INSIDE)


@outgoing_parts.register("noise")
class Noise(Outgoing):
    """N(0, (z C)²) added to each coordinate of a clipped difference, by clients or by the server.

    By each client: what it sends is private from the server on. By the server: to the sum of the
    clients' differences, divided by the number of clients that were asked; what comes out is
    private, and the server sees single updates.

    Source: McMahan et al. (2018), "Learning differentially private recurrent language models",
    Algorithm 1, for the sum with a fixed denominator; Balle and Wang (2018) for its ε.
    """

    stage = 2

    clip_norm: ClipNorm = 1.0
    noise_multiplier: float = Field(
        1.0,
        ge=0.0,
        le=1e6,
        description="standard deviation z of privacy's noise in units of clip-norm; 0: no noise",
    )
    noise_at: Literal["clients", "server"] = Field(
        "clients",
        description="who adds privacy's noise: each client to its update, or the server to the sum",
    )
    adjacency: Literal["replace", "zero-out"] = Field(
        "replace", description="what ε hides of a client: which data it has, or whether it has any"
    )
    privacy_delta: float = Field(
        1e-5, gt=0.0, lt=1.0, description="δ of the (ε, δ) that each round's record has"
    )
    epsilon_budget: float = Field(
        NO_BUDGET,
        gt=0.0,
        le=NO_BUDGET,
        description="the run ends before a round that would lead to a greater ε",
    )

    @property
    def active(self) -> bool:
        """True if there is any noise."""
        return self.noise_multiplier > 0.0

    @property
    def private(self) -> bool:
        """True if there is noise: clients then send no other number."""
        return self.active

    @property
    def draws(self) -> bool:
        """True if clients add the noise."""
        return self.active and self.noise_at == "clients"

    @property
    def draws_on_pool(self) -> bool:
        """True if the server adds the noise."""
        return self.active and self.noise_at == "server"

    def has(self) -> frozenset[str]:
        """Return that clients say nothing that they measure."""
        return frozenset({"secret-measurements"}) if self.active else frozenset()

    def requires(self) -> frozenset[str]:
        """Return that differences are bounded and clients alike, and what else ε rests on."""
        if not self.active:
            return frozenset()
        # The server measures differences from its own posterior: clients have to have been sent it.
        # A client that is asked again in a round would release another update of that round.
        own = {"averaged-values", "sent-variances"} if self.draws_on_pool else {"asked-once"}
        return frozenset({CLIPPED_UPDATES, "uniform-weights", *own})

    def excludes(self) -> frozenset[str]:
        """Return what would tell of a client's data besides its noised difference."""
        if not self.active:
            return frozenset()
        excluded = {"moving-statistics", "sent-beside", "evaluated-by-clients", "pre-training"}
        if self.draws_on_pool:  # each summand has to be as short as it is taken to be
            excluded |= {"changed-updates", "single-models", "unseen-updates"}
        return frozenset(excluded)

    def change(self, difference: Array, normals: Normals) -> Array:
        """Return the difference with noise, if it is the clients that add it."""
        return self._add_noise(difference, 1.0, normals) if self.draws else difference

    def change_pool(self, difference: Array, counts: Counts, normals: Normals) -> Array:
        """Return the noised sum of the pooled clients' differences over the number asked."""
        if not self.draws_on_pool:
            return difference
        share = 1 / counts.asked
        return self._add_noise(difference * (counts.pooled / counts.asked), share, normals)

    def _add_noise(self, difference: Array, share: float, normals: Normals) -> Array:
        scale = share * self.noise_multiplier * self.clip_norm
        return np.asarray(difference + scale * normals.standard_normal(difference.size))

    def mechanism(self) -> Mechanism | None:
        """Return what an account computes with: a round is one release, whatever was trained."""
        if not self.active:
            return None
        sensitivity, delta = SENSITIVITY[self.adjacency], self.privacy_delta
        return Mechanism(
            metric=EPSILON,
            multiplier_key="noise-multiplier",
            multiplier=self.noise_multiplier,
            budget_key="epsilon-budget",
            budget=self.epsilon_budget,
            delta=delta,
            releases=lambda epochs: 1,
            epsilon=lambda releases: gaussian_epsilon(
                self.noise_multiplier / sensitivity, releases, delta
            ),
            multiplier_for=lambda epsilon, releases: (
                noise_multiplier_for(epsilon, releases, delta) * sensitivity
            ),
        )
