"""Every registered workload: local epochs as a function of the seed, the round and the client."""

import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from bfl.configuration import resolve
from bfl.engine.flower import new_run
from bfl.errors import ConfigurationError
from bfl.federation.wire import TrainTask, posterior_to_arrays, train_content
from bfl.federation.workloads import Workload, workloads
from bfl.posteriors import Posterior


def table(
    workload: Workload, *, seed: int = 0, rounds: int = 1, clients: int = 10, epochs: int = 5
) -> np.ndarray:
    """Return the epochs of each round and client, (R, K)."""
    return np.array(
        [
            [workload.epochs(seed, number, k, clients, epochs) for k in range(clients)]
            for number in range(1, rounds + 1)
        ]
    )


@pytest.mark.parametrize("name", workloads.names())
@pytest.mark.parametrize("epochs", [1, 5])
def test_epochs_are_whole_and_those_that_are_expected(name: str, epochs: int) -> None:
    workload = workloads.create(name)
    drawn = np.concatenate([table(workload, seed=s, rounds=4, epochs=epochs) for s in range(60)])
    assert drawn.dtype.kind == "i"
    assert drawn.min() >= 1
    # 2,400 draws; of 600 that are drawn once the mean has a standard deviation of at most 0.24.
    assert abs(drawn.mean() - workload.expected_epochs(epochs)) < 1.0
    assert np.array_equal(table(workload, seed=3, rounds=2), table(workload, seed=3, rounds=2))


@pytest.mark.parametrize("name", ["uniform", "slow-share"])
@pytest.mark.parametrize("drawn", ["once", "each-round"])
def test_draws_are_of_the_run_or_of_the_round(name: str, drawn: str) -> None:
    workload = workloads.create(name, {"epochs-drawn": drawn, "slow-share": 0.9})
    rounds = table(workload, rounds=6, clients=20, epochs=20)
    assert (len({tuple(row) for row in rounds.tolist()}) == 1) == (drawn == "once")
    assert len(set(rounds[0].tolist())) > 3  # clients differ
    assert not np.array_equal(rounds, table(workload, seed=1, rounds=6, clients=20, epochs=20))


@pytest.mark.parametrize(
    ("workload", "settings", "epochs", "drawn"),
    [
        ("uniform", {"most-epochs": 4}, 1, {1, 2, 3, 4}),
        ("slow-share", {"slow-share": 1.0}, 5, {1, 2, 3, 4, 5}),  # as in HBFL
    ],
)
def test_draws_reach_all_numbers_equally_often(workload, settings, epochs, drawn) -> None:
    workload = workloads.create(workload, {"epochs-drawn": "each-round", **settings})
    many = [table(workload, seed=s, rounds=20, epochs=epochs) for s in range(10)]
    counts = Counter(np.concatenate(many).flat)
    assert set(counts) == drawn
    # 400 or 500 expected, a standard deviation of at most √(2000 · 0.25 · 0.75) = 19.4
    assert all(abs(count - 2000 / len(drawn)) < 5 * 19.4 for count in counts.values())


@pytest.mark.parametrize(("share", "slow"), [(0.0, 0), (0.5, 5), (0.9, 9), (1.0, 10)])
def test_a_share_of_the_clients_is_slow(share: float, slow: int) -> None:
    """Of so many epochs a slow client draws all but once in ten thousand times."""
    rounds = table(workloads.create("slow-share", {"slow-share": share}), rounds=10, epochs=10_000)
    assert set((rounds < 10_000).sum(axis=1)) == {slow}
    if slow == 5:
        assert len({tuple(row) for row in (rounds < 10_000).tolist()}) > 5  # not always the same


def test_a_run_says_its_mean_epochs_and_is_estimated_by_them() -> None:
    plain = resolve({"local-epochs": 20})
    assert set(table(plain.workload, rounds=3, epochs=7).ravel()) == {7}
    drawn = plain.replace(workload="uniform")
    assert "of 20 local epochs" in plain.title
    assert "average" not in plain.title
    assert "of 10.5 local epochs on average" in drawn.title


def test_a_client_trains_for_its_own_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    from clients import client_app
    from clients import round as client_round

    asked: list[int] = []

    class Trainer:
        network = SimpleNamespace(manifest=None)

        def train(self, images: Any, labels: Any, task: Any) -> None:
            asked.append(task.epochs)
            raise ConfigurationError("enough")

    monkeypatch.setattr(client_round, "trainer_for", lambda *_, **__: Trainer())
    monkeypatch.setattr(client_round, "start_tensorflow", lambda: None)
    values = {"workload": "slow-share", "slow-share": 0.7, "local-epochs": 50, "seed": 4}
    run = new_run({}).run_id
    posterior = Posterior(np.zeros(2, np.float32), np.ones(2, np.float32))
    for number in (1, 2):
        for partition_id in range(5):
            task = TrainTask(number, partition_id, json.dumps(values), 10, np.arange(4))
            message = Message(train_content(posterior_to_arrays(posterior), task), 1, "train")
            node = {"partition-id": partition_id, "num-partitions": 5, "simulation": True}
            context = Context(run, 1, node, RecordDict(), {})
            assert "enough" in str(client_app.train(message, context).error.reason)
    expected = table(
        workloads.create("slow-share", {"slow-share": 0.7}), seed=4, rounds=2, clients=5, epochs=50
    )
    assert asked == expected.ravel().tolist()
