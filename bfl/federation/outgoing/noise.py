"""Gaussian noise, by which single clients cannot be told from what is released."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from bfl.federation.outgoing.base import Outgoing, outgoing_parts
from bfl.federation.outgoing.clip import ClipNorm
from bfl.federation.parts import Counts
from bfl.federation.privacy.accountant import EPSILON, gaussian_epsilon, noise_multiplier_for
from bfl.federation.privacy.difference import Array
from bfl.federation.privacy.mechanism import NO_BUDGET, Mechanism
from bfl.federation.privacy.normals import Normals

SENSITIVITY = {"replace": 2.0, "zero-out": 1.0}
"""How far a clipped difference can move between two neighbours, in units of the clip norm."""


@outgoing_parts.register("noise")
class Noise(Outgoing):
    """N(0, (z C)²) added to each coordinate of a clipped difference, by clients or by the server.

    Of each client by itself: what it sends is private from the server on. By the server: to the sum
    of the clients' differences, whose mean over all clients that were asked is then the step; what
    comes out is private, and the server sees single updates.

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
        "replace",
        description="what ε hides of a client: which data it has, or whether it has any",
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
        """Whether there is any noise."""
        return self.noise_multiplier > 0.0

    @property
    def private(self) -> bool:
        """Whether clients send no other number: where there is noise."""
        return self.active

    @property
    def draws(self) -> bool:
        """Whether clients add it."""
        return self.active and not self.by_server

    @property
    def draws_on_pool(self) -> bool:
        """Whether the server adds it."""
        return self.active and self.by_server

    @property
    def by_server(self) -> bool:
        """Whether it is the server that adds it."""
        return self.noise_at == "server"

    def has(self) -> frozenset[str]:
        """Return that clients say nothing that they measure."""
        return frozenset({"secret-measurements"}) if self.active else frozenset()

    def requires(self) -> frozenset[str]:
        """Return that differences are bounded and clients alike, and what else ε rests on."""
        if not self.active:
            return frozenset()
        # The server measures differences from its own posterior: clients have to have been sent it.
        # A client that is asked again in a round would release another update of that round.
        own = {"averaged-values", "sent-variances"} if self.by_server else {"asked-once"}
        return frozenset({"clipped-updates", "uniform-weights", *own})

    def excludes(self) -> frozenset[str]:
        """Return what would tell of a client's data beside its noised difference."""
        if not self.active:
            return frozenset()
        # What is made of noised updates is no release more; of the server's sum there is one, and
        # each part of it has to be as short as it is taken to be.
        own = {"changed-updates", "single-models", "unseen-updates"} if self.by_server else set()
        return frozenset(
            {"moving-statistics", "sent-beside", "judged-by-clients", "pre-training", *own}
        )

    def change(self, difference: Array, normals: Normals) -> Array:
        """Return the difference with noise, if it is the clients that add it."""
        return difference if self.by_server else self._noised(difference, 1.0, normals)

    def change_pool(self, difference: Array, counts: Counts, normals: Normals) -> Array:
        """Return the noised sum of the pooled clients' differences over the number asked."""
        if not self.by_server:
            return difference
        return self._noised(difference * (counts.pooled / counts.asked), 1 / counts.asked, normals)

    def _noised(self, difference: Array, share: float, normals: Normals) -> Array:
        scale = share * self.noise_multiplier * self.clip_norm
        return np.asarray(difference + scale * normals.standard_normal(difference.size))

    def mechanism(self) -> Mechanism | None:
        """Return what an account reckons with: a round is one release, whatever was trained."""
        if not self.active:
            return None
        return Mechanism(
            metric=EPSILON,
            multiplier_key="noise-multiplier",
            multiplier=self.noise_multiplier,
            budget_key="epsilon-budget",
            budget=self.epsilon_budget,
            delta=self.privacy_delta,
            releases=lambda epochs: 1,
            epsilon=self.epsilon,
            multiplier_for=self.multiplier_for,
        )

    def epsilon(self, releases: int) -> float:
        """Return ε of a client that has been asked in so many rounds."""
        multiplier = self.noise_multiplier / SENSITIVITY[self.adjacency]
        return gaussian_epsilon(multiplier, releases, self.privacy_delta)

    def multiplier_for(self, epsilon: float, releases: int) -> float:
        """Return the ``noise_multiplier`` with which so many rounds have an ε."""
        multiplier = noise_multiplier_for(epsilon, releases, self.privacy_delta)
        return multiplier * SENSITIVITY[self.adjacency]
