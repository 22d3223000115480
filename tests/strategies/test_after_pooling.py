"""What moves the pool, and what parts make of arrays that clients send, ends a run in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from bfl.configuration import resolve
from bfl.errors import RunError
from bfl.posteriors import Posterior
from strategies.method import Method
from strategies.round import federated_round
from strategies.server_state import ServerState
from strategies.training_request import TrainingRequest
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

    def train(
        self, request: TrainingRequest, on_refused: Callable[[int], None]
    ) -> Iterator[ClientUpdate]:
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

    words = "part 'scaffold' broadcasts what clients refuse: control-mean has 3 of 3 values outside"
    with np.errstate(over="ignore"), pytest.raises(RunError, match=words):
        rounds({"strategy": "scaffold"}, update, 6)
