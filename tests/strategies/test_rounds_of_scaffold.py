"""SCAFFOLD on quadratics through the product's whole round, with some clients in each.

Its optimum is known. The clients are the product's but for the gradients, which are exact here.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import quadratics
from numpy_clients import Fault, Faults, PartFederation, no_faults
from quadratics import OPTIMUM, RATE, STEPS

from bfl.configuration import resolve
from bfl.federation.parts import Arrays, Trained
from bfl.federation.wire import TrainTask
from bfl.posteriors import Posterior
from clients.state import PartStates
from strategies import make_strategy
from strategies.server_state import Round

K, ROUNDS = 4, 120
BASE: dict[str, Any] = {
    "seed": 3,
    "clients": K,
    "fraction-train": 0.5,
    "weighting": "equal",
    "min-clients": 1.0,
    "scale-floor": 0.0,
}


def one_is_lost(server_round: int, partition_id: int) -> Fault:
    """Lose the reply of the last of the clients in every third round, when it has kept its state,
    and refuse that of another in others."""
    faults: dict[tuple[int, int], Fault] = {(0, 3): "lost", (1, 2): "refused", (2, 1): "late"}
    return faults.get((server_round % 3, partition_id), "")


def run(folder: Path, rounds: int, faults: Faults = no_faults, **values: Any) -> list[Round]:
    given = {**BASE, **{key.replace("_", "-"): value for key, value in values.items()}}
    configuration = resolve(given)
    correction = configuration.correction

    def made(**more: Any) -> Any:
        return make_strategy(configuration, 10, [np.arange(9)] * K, **more)

    def train(task: TrainTask, received: Posterior, beside: Arrays, states: PartStates) -> Trained:
        offsets = correction.offsets(states.of_part(correction), beside, received)
        begun = np.concatenate([received.mean, received.point])
        sent = quadratics.posterior(quadratics.train(task.partition_id, begun, offsets))
        return Trained(received, sent, beside, 9, STEPS, RATE, np.ones(1, bool))

    initial = quadratics.posterior(quadratics.BEGINNING)
    return PartFederation(folder, made, train, K, initial, faults).run(rounds)


def distances(rounds: list[Round]) -> np.ndarray:
    """Return how far each round ends from the optimum, array (rounds,)."""
    ends = [np.concatenate([done.posterior.mean, done.posterior.point]) for done in rounds]
    return np.asarray(np.abs(np.array(ends) - OPTIMUM).max(axis=1))


@pytest.mark.parametrize("faults", [no_faults, one_is_lost])
def test_it_reaches_the_exact_optimum_with_half_of_the_clients(
    faults: Faults, tmp_path: Path
) -> None:
    rounds = run(tmp_path, ROUNDS, faults, strategy="scaffold")
    asked = 2 * ROUNDS
    pooled = sum(len(done.clients) for done in rounds)
    assert pooled == asked if faults is no_faults else pooled < asked - 10
    assert distances(rounds)[-1] < 1e-5
    for server in rounds[-1].state.parts["scaffold"].values():
        np.testing.assert_allclose(server, 0.0, atol=1e-4)  # the gradients there sum to 0


def test_averaging_does_not(tmp_path: Path) -> None:
    assert distances(run(tmp_path, ROUNDS // 2, strategy="fedavg"))[-20:].min() > 0.1
