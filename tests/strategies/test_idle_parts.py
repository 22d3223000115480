"""A part that is off does nothing."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from bfl.aggregation.defences import Defence
from bfl.posteriors import Posterior
from strategies.method import Method
from strategies.round import round_request, weigh
from strategies.server_state import ServerState
from strategies.updates import ClientUpdate

START = Posterior(np.zeros(3, np.float32), np.ones(3, np.float32))


class Watching(Defence):
    """Changes nothing, and need not see all updates together."""

    idle: ClassVar[bool] = True

    def protect(self, posteriors: Sequence[Posterior]) -> list[Posterior]:
        raise AssertionError("all updates were held together")


def test_an_idle_defence_waits_for_no_other_update() -> None:
    defence = Watching()
    assert not defence.has()
    pending: list[int] = []

    def updates() -> Iterator[ClientUpdate]:
        for client in range(3):
            pending.append(client)
            yield ClientUpdate(client, START, 5, {})

    method = Method.of_parts(
        sampling="random",
        pooling="conflation",
        weighting="train-size",
        defence=defence,
        server_optimizer="none",
    )
    request = round_request(method, ServerState.first(START, 3), 0, {})
    for update, weight in weigh(request, updates(), dict.fromkeys(range(3), 5), None):
        assert weight == 1 / 3
        assert pending == [update.partition_id]
        pending.clear()
