"""What a private client draws its noise from, and what it says beside its update."""

import json
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from bfl.configuration import resolve
from bfl.engine.flower import new_run
from bfl.federation.privacy import difference
from bfl.federation.secure_aggregation.masking import check_range
from bfl.federation.wire import METRICS, TrainTask, posterior_from_arrays, posterior_to_arrays
from bfl.posteriors import Posterior
from clients.client_app import cached_client, train
from clients.node import Node
from clients.round import apply_outgoing, train_update

PRIVATE: dict[str, Any] = {
    "model": "mlp",
    "weighting": "equal",
    "outgoing": "clip+noise",
    "round-retries": 0,
}
SIMULATED: dict[str, Any] = {"simulation": True}
POSTERIOR = Posterior(np.zeros(500, np.float32), np.full(500, 0.01, np.float32))


def context(partition_id: int, **config: Any) -> Context:
    node = {"partition-id": partition_id, "num-partitions": 2, **config}
    return Context(new_run({}).run_id, 1, node, RecordDict(), {})


def noise(partition_id: int, server_round: int = 1, seed: int = 0, **config: Any) -> Any:
    """Return the noise that a client that has learned nothing sends."""
    task = TrainTask(server_round, partition_id, "{}", 10, None)
    node = Node.of(context(partition_id, **config))
    configuration = resolve({**PRIVATE, "seed": seed})
    return difference(POSTERIOR, apply_outgoing(configuration, task, node, POSTERIOR, POSTERIOR))


def test_a_simulation_repeats_its_noise_and_clients_and_rounds_have_their_own() -> None:
    np.testing.assert_array_equal(noise(0, **SIMULATED), noise(0, **SIMULATED))
    drawn = [noise(*each, **SIMULATED) for each in ((0,), (1,), (0, 2), (0, 1, 1))]
    correlations = np.corrcoef(drawn) - np.eye(4)
    assert np.abs(correlations).max() < 0.2


def test_clients_of_a_deployment_never_share_noise() -> None:
    """Not even one client with itself, when it is asked the same again; nor with the seed's."""
    drawn = [noise(0), noise(0), noise(1), noise(1), noise(0, **SIMULATED)]
    assert np.abs(np.corrcoef(drawn) - np.eye(5)).max() < 0.2
    assert len(set(np.round(np.concatenate(drawn), 12))) > 0.99 * 5 * drawn[0].size


def asked(task: TrainTask, received: Posterior | None = None, **config: Any) -> Message:
    content = RecordDict({"config": task.to_config()})
    if received is not None:
        content["arrays"] = posterior_to_arrays(received)
    answered: Message = train(Message(content, 1, "train"), context(0, **config))
    return answered


@pytest.mark.parametrize(
    "values",
    [
        {"model": "mlp"},
        {**PRIVATE, "noise-multiplier": 0.0},
        {**PRIVATE, "noise-at": "server", "strategy": "aalv"},
        # It hides single examples, and the node asks that the whole client be hidden.
        {"model": "mlp", "example-privacy": "dp-sgd", "round-retries": 0},
    ],
)
def test_a_node_that_asks_for_noise_sends_nothing_without(values: dict[str, Any]) -> None:
    task = TrainTask(1, 0, json.dumps(values), 10, None)
    assert "this node has private=true" in asked(task, private=True).error.reason
    assert "private=true" not in asked(task).error.reason
    task = TrainTask(1, 0, json.dumps(PRIVATE), 10, None)
    assert "private=true" not in asked(task, private=True).error.reason


def test_a_private_client_says_nothing_that_it_has_measured(tensorflow: Any) -> None:
    from bfl.experiments.run.network import trainer_for

    values = {**PRIVATE, "inference": "deterministic", "strategy": "nwa", "local-epochs": 1}
    network = trainer_for(resolve(values), (8, 8, 1), 10).network
    received = network.initial_posterior(0)
    task = TrainTask(1, 0, json.dumps(values), 10, np.arange(40))
    sent: Any = asked(task, received).content[METRICS]
    assert dict(sent) == {"num-examples": 40}
    task = TrainTask(1, 0, json.dumps(values), 10, None)
    sent = asked(task, received, dataset="digits").content[METRICS]
    assert dict(sent) == {"num-examples": 1}
    masked = {**values, "exchange": "masked", "noise-multiplier": 1e3, "clip-norm": 1e5}
    task, node = TrainTask(1, 0, json.dumps(masked), 10, np.arange(40)), context(0)
    content = RecordDict({"arrays": posterior_to_arrays(received)})
    update, *_ = train_update(Message(content, 1, "train"), node, task, cached_client(node, task))
    check_range(update, received)  # however far the noise has gone
    task = TrainTask(1, 0, json.dumps({**values, "outgoing": "clip"}), 10, np.arange(40))
    sent = asked(task, received).content[METRICS]
    assert "train-objective" in sent
    # Of private examples their number is known: it is the same for neighbours.
    values |= {"outgoing": "none", "example-privacy": "dp-sgd", "example-sampling-rate": 0.5}
    task = TrainTask(1, 0, json.dumps(values), 10, np.arange(40))
    answers = [asked(task, received) for _ in range(2)]
    assert [dict(a.content[METRICS]) for a in answers] == [{"num-examples": 40}] * 2
    # Outside of a simulation no seed gives its batches and noise.
    points = [posterior_from_arrays(a.content["arrays"]).point for a in answers]
    assert not np.allclose(*points, atol=1e-3)
    simulated = [
        posterior_from_arrays(asked(task, received, **SIMULATED).content["arrays"]).digest()
        for _ in range(2)
    ]
    assert simulated[0] == simulated[1]
    values["example-noise-multiplier"] = 0.0
    bare = TrainTask(1, 0, json.dumps(values), 10, np.arange(9))
    assert "train-objective" in asked(bare, received).content[METRICS]
