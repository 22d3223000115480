"""FedNova as a user would add it: a weighting, what clients send, and the server's step."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from flwr.app import RecordDict
from small_federation import play

from bfl.aggregation.server_optimizers import Array, ServerOptimizer, State, StepContext
from bfl.aggregation.weightings.base import ReportWeighting
from bfl.federation.parts import Arrays, DeclaredArray, Trained
from bfl.federation.wire import TrainTask, reply_content
from bfl.learning.corrections import Correction
from bfl.posteriors import Posterior

STEPS, EXAMPLES = np.array([2, 5, 11]), np.array([30, 10, 20])
MOVES = np.array([[1.0, -2.0], [4.0, 0.5], [-3.0, 6.0]], np.float32)


class PerStep(ReportWeighting):
    """ω_k ∝ p_k / τ_k."""

    name: ClassVar[str] = "per-step"
    reads: ClassVar[tuple[str, ...]] = ("train-steps",)

    def gamma_of_reports(
        self, reports: Sequence[Mapping[str, float]], num_examples: Sequence[int]
    ) -> Array:
        return np.array(num_examples) / [report["train-steps"] for report in reports]


class SendsSteps(Correction):
    """Sends τ_k and τ_k², whose means with these weights give Σ p_k τ_k · Σ p_k / τ_k."""

    name: ClassVar[str] = "steps"
    active: ClassVar[bool] = False

    def offsets(self, state: Arrays, broadcast: Arrays, received: Posterior) -> Arrays:
        return {}

    def declared_replies(self, posterior: Posterior) -> tuple[DeclaredArray, ...]:
        return (DeclaredArray("steps", (2,), "mean", low=1.0),)

    def conclude(self, state: Arrays, trained: Trained) -> tuple[Arrays, Arrays]:
        return {"steps": np.float32([trained.steps, trained.steps**2])}, state


class EffectiveSteps(ServerOptimizer):
    """x + τ_eff Σ p_k Δ_k / τ_k in place of the step to the pool."""

    name: ClassVar[str] = "effective-steps"

    def init(self, size: int) -> State:
        return {}

    def step(self, state: State, delta: Array, context: StepContext) -> tuple[State, Array]:
        mean, square = context.combined["steps"]
        return state, delta * square / mean**2


def test_the_servers_step_is_that_of_fednova() -> None:
    """x + τ_eff Σ p_k Δ_k / τ_k with τ_eff = Σ p_k τ_k: Wang et al. (2020), "Tackling the objective
    inconsistency problem in heterogeneous federated optimization". A client that says a step which
    it cannot have made would have all the weight: it is refused.
    """
    part = SendsSteps()

    def reply(task: TrainTask, received: Posterior) -> RecordDict:
        client = task.partition_id % len(STEPS)
        sent = Posterior(received.mean + MOVES[client], received.variance, received.point)
        steps = int(STEPS[client])
        trained = Trained(received, sent, {}, int(EXAMPLES[client]), steps, 0.1, np.ones(0, bool))
        said = steps if task.partition_id == client else 1e-9
        metrics = {"num-examples": trained.examples, "train-steps": said}
        return reply_content(sent, metrics, part.conclude({}, trained)[0])

    method = {"weighting": PerStep(), "parts": [part], "server_optimizer": EffectiveSteps()}
    start = Posterior(np.float32([0.5, -1.0]), np.ones(2, np.float32), np.zeros(0, np.float32))
    pooled, _, told = play(reply, start=start, rounds=2, rule="nwa", **method)
    shares = EXAMPLES / EXAMPLES.sum()
    step = (shares @ STEPS) * ((shares / STEPS) @ MOVES)
    np.testing.assert_allclose(pooled.mean, start.mean + 2 * step, rtol=1e-5)
    assert sum("client 3: update refused" in text for text in told) == 2
