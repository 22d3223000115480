"""SCAFFOLD on quadratics, whose optimum and whose fixed point under averaging are known."""

from typing import Any

import numpy as np
import pytest
from quadratics import BEGINNING, CENTRES, CURVATURES, OPTIMUM, RATE, STEPS, posterior, train

from bfl.federation.parts import Arrays, Counts, Trained
from bfl.federation.sampling import samplings
from bfl.learning.corrections import Correction, corrections


def averagings_fixed_point() -> np.ndarray:
    """Return where averaging all clients ends: their share of the way to their own optima."""
    shares = 1 - (1 - RATE * CURVATURES) ** STEPS
    return np.asarray((shares * CENTRES).sum(0) / shares.sum(0))


def federate(
    correction: Correction, rounds: int, fraction: float, lost: float = 0.0
) -> tuple[np.ndarray, Arrays, dict[int, Any]]:
    """Return the values, the server's control variate and the clients', after some rounds."""
    sampling = samplings.create("random", {"fraction-train": fraction})
    chance = np.random.default_rng(5)
    values = BEGINNING
    server = correction.begin_server(posterior(values), 4)
    clients = {k: correction.begin_client(posterior(values)) for k in range(4)}
    for number in range(1, rounds + 1):
        broadcast = correction.broadcast(server)
        received = values
        sums: dict[str, Any] = {}
        moved = []
        asked = sampling.sample(3, number, 4)
        for k in asked:
            offsets = correction.offsets(clients[k], broadcast, posterior(received))
            after = train(k, received, offsets)
            trained = Trained(
                received=posterior(received),
                sent=posterior(after),
                broadcast=broadcast,
                examples=1,
                steps=STEPS,
                learning_rate=RATE,
                trainable=np.ones(1, bool),
            )
            sent, kept = correction.conclude(clients[k], trained)
            if chance.random() < lost:
                continue  # the server never hears of it, so nothing is committed
            clients[k] = correction.commit(kept, 1.0)
            moved.append(after)
            for name, array in sent.items():
                sums[name] = sums.get(name, 0.0) + array.astype(np.float64)
        if moved:
            values = np.mean(moved, axis=0)
            counts = Counts(len(asked), len(moved), 4, number)
            server = correction.fold(server, sums, counts)
    return values, server, clients


def joined(state: Arrays) -> np.ndarray:
    return np.concatenate([state["control-mean"], state["control-point"]])


@pytest.mark.parametrize(("fraction", "lost"), [(1.0, 0.0), (0.5, 0.0), (0.5, 0.3)])
def test_it_reaches_the_exact_optimum_with_partial_participation(
    fraction: float, lost: float
) -> None:
    scaffold = corrections.create("scaffold")
    values, server, clients = federate(scaffold, 600, fraction, lost)
    np.testing.assert_allclose(values, OPTIMUM, atol=1e-5)
    np.testing.assert_allclose(
        joined(server), 0.0, atol=1e-4
    )  # the gradients at the optimum sum to 0
    for k, state in clients.items():
        np.testing.assert_allclose(joined(state), CURVATURES[k] * (OPTIMUM - CENTRES[k]), atol=1e-3)


def test_plain_averaging_does_not() -> None:
    values, _, _ = federate(corrections.create("none"), 600, 1.0)
    np.testing.assert_allclose(values, averagings_fixed_point(), atol=1e-9)
    assert np.all(np.abs(values - OPTIMUM) > 0.05)


def test_the_servers_variate_stays_the_mean_of_all_clients() -> None:
    scaffold = corrections.create("scaffold")
    _, server, clients = federate(scaffold, 23, 0.5, lost=0.3)
    own = [joined(state) for state in clients.values()]
    np.testing.assert_allclose(joined(server), np.mean(own, axis=0), rtol=1e-12, atol=1e-12)


def test_two_rounds_by_hand() -> None:
    """One step: c_k is then the gradient at the received point, whatever c was."""
    scaffold = corrections.create("scaffold")
    state = scaffold.begin_client(posterior(np.zeros(2)))
    broadcast = {
        "control-mean": np.array([0.5], np.float32),
        "control-point": np.array([-1.0], np.float32),
    }
    offsets = scaffold.offsets(state, broadcast, posterior(np.zeros(2)))
    np.testing.assert_array_equal(offsets["mean"], [0.5])  # c − c_k, and c_k is 0
    # A gradient of 2 at x = 1, one step of 0.1: y = 1 − 0.1 (2 + 0.5) = 0.75.
    trained = Trained(
        received=posterior(np.array([1.0, 1.0])),
        sent=posterior(np.array([0.75, 1.0])),
        broadcast=broadcast,
        examples=1,
        steps=1,
        learning_rate=0.1,
        trainable=np.zeros(1, bool),
    )
    sent, kept = scaffold.conclude(state, trained)
    np.testing.assert_allclose(sent["control-change-mean"], [2.0], rtol=1e-6)
    np.testing.assert_array_equal(sent["control-change-point"], [0.0])  # training does not move it
    following = scaffold.offsets(scaffold.commit(kept, 1.0), broadcast, posterior(np.zeros(2)))
    np.testing.assert_allclose(following["mean"], [0.5 - 2.0], rtol=1e-6)
