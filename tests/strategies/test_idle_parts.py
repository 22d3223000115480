"""A part that does nothing is known by what it says of itself, whatever its name and its class."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from bfl.aggregation.defences import Defence
from bfl.configuration import resolve
from bfl.federation.attacks import Attack
from bfl.federation.outgoing import Outgoing
from bfl.posteriors import Posterior
from strategies.method import Method
from strategies.privacy import PoolNoise
from strategies.round import round_request, weigh
from strategies.server_state import ServerState
from strategies.updates import ClientUpdate

START = Posterior(np.zeros(3, np.float32), np.ones(3, np.float32))


class Watching(Defence):
    """Changes nothing, and need not see all updates together."""

    idle: ClassVar[bool] = True

    def protect(self, posteriors: Sequence[Posterior]) -> list[Posterior]:
        raise AssertionError("all updates were held together")


class Honest(Attack):
    """Sends what was learned."""

    idle: ClassVar[bool] = True

    def corrupt(self, learned: Any, received: Any, generator: Any) -> Posterior:
        raise AssertionError("nobody is hostile")


class NoiseOnPools(Outgoing):
    """Noise of the server's on differences of a length that is bounded."""

    name = "noise-on-pools"

    @property
    def draws_on_pool(self) -> bool:
        return True

    def change(self, difference: Any, normals: Any) -> Any:
        return difference

    def holds(self, difference: Any) -> bool:
        return bool(np.linalg.norm(difference) <= 1)


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


def test_with_an_idle_attack_nobody_is_hostile() -> None:
    hostile = resolve({"attack": "sign-flip", "attackers": 1})
    assert hostile.attacks(0)
    honest = replace(hostile, attack=Honest())
    assert not honest.attacks(0)
    assert not honest.attack.has()


def test_noise_of_the_servers_hides_differences_as_its_chain_holds_them() -> None:
    """Whichever part adds it: a longer one is refused."""
    noise = PoolNoise((NoiseOnPools(),), 0, anew=False)
    far = Posterior(np.full(3, 2, np.float32), np.ones(3, np.float32))
    assert noise.problem(START, START) is None
    assert "outgoing has ['noise-on-pools']" in str(noise.problem(far, START))
