"""Corrections: vectors that a client adds to its gradients, constant within a round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from bfl.federation.parts import (
    GREATEST_BESIDE,
    Arrays,
    Counts,
    DeclaredArray,
    Trained,
    TwoSidedPart,
)
from bfl.posteriors import Posterior
from bfl.registry import Registry


class Correction(TwoSidedPart, ABC):
    """A part that adds something to the gradient of every step of a client's round.

    It acts on means and on point parameters that training moves; standard deviations are left to
    the objective.
    """

    active: ClassVar[bool] = True  # whether it adds anything; if not, no step computes it

    @abstractmethod
    def offsets(self, state: Arrays, broadcast: Arrays, received: Posterior) -> Arrays:
        """Return what is added to the gradients: ``mean`` (D,) and ``point`` (P,), float32.

        ``broadcast`` is what the server has sent besides the posterior.
        """


corrections: Registry[Correction] = Registry("correction", "bfl.learning.corrections")


@corrections.register("none")
class NoCorrection(Correction):
    """The gradient as it is."""

    active: ClassVar[bool] = False

    def offsets(self, state: Arrays, broadcast: Arrays, received: Posterior) -> Arrays:
        """Return nothing."""
        return {}


VECTORS = ("mean", "point")
CONTROL, CHANGE = ({v: f"{word}-{v}" for v in VECTORS} for word in ("control", "control-change"))

GREATEST_CONTROL = 1e6 * GREATEST_BESIDE
"""The greatest absolute value of c, a million times that by which a round moves it at the most."""


@corrections.register("scaffold", aliases=("control-variates",))
class Scaffold(Correction):
    """Steps along g − c_k + c, with c_k the client's control variate and c the server's.

    With x what the client received, y_k what it sends back after S steps of rate η, the client's
    next control variate is c_k⁺ = c_k − c + (x − y_k) / (S η), option II of the paper. It sends
    c_k⁺ − c_k, and the server adds their sum over the pooled clients, divided by the number N of
    all clients, to c. All begin at 0. Controlled are means and those point parameters that training
    moves; standard deviations are not.

    It holds for plain steps of one rate from x to y_k, uniform weights and averages of
    means alone: otherwise the sum of all c_k is not N c, or drifts do not cancel.

    Source: Karimireddy et al. (2020), "SCAFFOLD: Stochastic controlled averaging for federated
    learning", Algorithm 1; its x ← x + η_g Σ (y_k − x) / |S| is a weighting ``equal``, naive
    averaging, and the server optimizer's rate.
    """

    state_name: ClassVar[str] = "scaffold"
    always_requires: ClassVar[frozenset[str]] = frozenset(
        {"plain-steps", "uniform-weights", "averaged-means"}
    )
    always_excludes: ClassVar[frozenset[str]] = frozenset(
        {"start-elsewhere", "corrupted-updates", "falling-rate"}
    )

    def begin_server(self, posterior: Posterior, clients: int) -> Arrays:
        """Return c = 0."""
        return _zeros(posterior)

    def begin_client(self, received: Posterior) -> Arrays:
        """Return c_k = 0."""
        return _zeros(received)

    def broadcast(self, state: Arrays) -> Arrays:
        """Return c."""
        return {CONTROL[v]: state[CONTROL[v]].astype(np.float32) for v in VECTORS}

    def declared_broadcast(self, posterior: Posterior) -> tuple[DeclaredArray, ...]:
        """Declare c."""
        most = GREATEST_CONTROL
        return tuple(
            DeclaredArray(CONTROL[v], getattr(posterior, v).shape, low=-most, high=most)
            for v in VECTORS
        )

    def declared_replies(self, posterior: Posterior) -> tuple[DeclaredArray, ...]:
        """Declare the changes of control variates, whose sum the server uses."""
        return tuple(
            DeclaredArray(CHANGE[v], getattr(posterior, v).shape, combined="sum") for v in VECTORS
        )

    def offsets(self, state: Arrays, broadcast: Arrays, received: Posterior) -> Arrays:
        """Return c − c_k, which Algorithm 1 adds to the gradient of each local step."""
        return {v: (broadcast[CONTROL[v]] - state[CONTROL[v]]).astype(np.float32) for v in VECTORS}

    def conclude(self, state: Arrays, trained: Trained) -> tuple[Arrays, Arrays]:
        """Return the change of the client's control variate, and the next one to keep."""
        sent, kept = {}, {}
        moved = {"mean": np.ones(trained.received.size, bool), "point": trained.trainable}
        for vector in VECTORS:
            before = state[CONTROL[vector]].astype(np.float64)
            # c_k⁺ of Algorithm 1, by option II.
            received = getattr(trained.received, vector).astype(np.float64)
            path = received - getattr(trained.sent, vector)
            control = trained.broadcast[CONTROL[vector]]
            following = before - control + path / (trained.steps * trained.learning_rate)
            following = np.where(moved[vector], following, 0.0)
            # What is kept is what was sent: the server's c stays the mean of all c_k.
            sent[CHANGE[vector]] = (following - before).astype(np.float32)
            kept[CONTROL[vector]] = before + sent[CHANGE[vector]]
        return sent, kept

    def fold(self, state: Arrays, combined: Arrays, counts: Counts) -> Arrays:
        """Return c with the sum of all changes over N added, as Algorithm 1 ends a round."""
        return {
            CONTROL[v]: state[CONTROL[v]] + combined[CHANGE[v]] / counts.clients for v in VECTORS
        }


def _zeros(posterior: Posterior) -> Arrays:
    return {CONTROL[v]: np.zeros(getattr(posterior, v).size) for v in VECTORS}
