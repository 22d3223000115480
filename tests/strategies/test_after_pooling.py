"""What moves the pool, and what parts make of arrays that clients send, ends a run in words."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from small_federation import federated_round, play

from bfl.configuration import resolve
from bfl.errors import RunError
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.manifest import Parameter
from strategies.method import Method
from strategies.round import TrainingRequest
from strategies.server_state import ServerState
from strategies.updates import ClientUpdate

SIZE, CLIENTS = 3, 4


def posterior(mean: float) -> Posterior:
    return Posterior(np.full(SIZE, mean, np.float32), np.ones(SIZE, np.float32))


@dataclass
class Sending:
    """Clients that send what a function gives; the first is hostile."""

    update: Callable[[int], ClientUpdate]
    size: int = CLIENTS
    num_examples: Mapping[int, int] = field(default_factory=lambda: dict.fromkeys(range(4), 10))

    def train(self, request: TrainingRequest) -> Iterator[ClientUpdate]:
        return (self.update(client) for client in request.partition_ids)


def rounds(keys: dict[str, Any], update: Callable[[int], ClientUpdate], count: int) -> None:
    method = Method.of(resolve(keys, check_data=False))
    begun = method.begin(posterior(0.0), CLIENTS)
    state = ServerState.first(posterior(0.0), CLIENTS, begun)
    for _ in range(count):
        state, _ = federated_round(method, state, Sending(update), 0)


def test_a_server_step_beyond_all_numbers_ends_the_run() -> None:
    def update(client: int) -> ClientUpdate:
        return ClientUpdate(client, posterior(0.0 if client else 3.3e38), 10, {}, {})

    keys = {"strategy": "nwa", "server-optimizer": "momentum", "server-learning-rate": 1000.0}
    with np.errstate(over="ignore"), pytest.raises(RunError, match="round 1, after pooling: mean"):
        rounds(keys, update, 1)
    rounds({"strategy": "nwa"}, update, 3)


def test_a_part_s_state_that_overflows_ends_the_run() -> None:
    def update(client: int) -> ClientUpdate:
        sent = np.full(SIZE, 0.0 if client else 3e38, np.float32)
        beside = {"control-change-mean": sent, "control-change-point": np.zeros(0, np.float32)}
        return ClientUpdate(client, posterior(0.1), 10, {}, beside)

    words = "part 'scaffold' broadcasts 'control-mean' with 3 of 3 values outside"
    with np.errstate(over="ignore"), pytest.raises(RunError, match=words):
        rounds({"strategy": "scaffold"}, update, 6)


MOVING = Manifest(
    (
        Parameter("kernel", (SIZE,), True, "he-normal"),
        Parameter("scale", (1,), False, "ones"),
        Parameter("moving_mean", (1,), False, "zeros", trainable=False),
        Parameter("moving_variance", (1,), False, "ones", minimum=0.0, trainable=False),
    )
)
MOMENTUM: dict[str, Any] = {
    "strategy": "nwa",
    "server-optimizer": "momentum",
    "server-momentum": 0.9,
}


def test_a_server_step_leaves_moving_means_and_variances_as_they_were_pooled() -> None:
    """Momentum overshoots weights that stop where the pool is; what was measured it does not."""

    def sent(client: int) -> ClientUpdate:
        point = np.array([2.0, 2.0, 0.01], np.float32)
        return ClientUpdate(client, replace(posterior(2.0), point=point), 10, {}, {})

    method = Method.of(resolve(MOMENTUM, check_data=False))
    state = ServerState.first(replace(posterior(0.0), point=np.ones(3, np.float32)), CLIENTS)
    for _ in range(3):
        state, _ = federated_round(method, state, Sending(sent), 0, MOVING)
    scale, *moving = state.posterior.point.tolist()
    assert abs(scale - 2.0) > 0.1
    assert (np.abs(state.posterior.mean - 2.0) > 0.1).all()
    assert moving == pytest.approx([2.0, 0.01])


@pytest.mark.parametrize(
    ("keys", "manifest", "points", "warned"),
    [
        (MOMENTUM, None, 3, True),
        (MOMENTUM, MOVING, 3, False),
        (MOMENTUM, None, 0, False),
        ({"strategy": "nwa"}, None, 3, False),
    ],
)
def test_steps_that_may_move_statistics_are_warned_of(
    keys: dict[str, Any], manifest: Manifest | None, points: int, warned: bool
) -> None:
    """Without a manifest nobody knows which point parameters follow the data."""
    optimizer = resolve(keys, check_data=False).server_optimizer
    first = replace(posterior(0.0), point=np.ones(points, np.float32))
    *_, told = play(start=first, rule="nwa", server_optimizer=optimizer, manifest=manifest)
    said = [text for text in told if "moves all 3 point parameters" in text]
    assert len(said) == warned
