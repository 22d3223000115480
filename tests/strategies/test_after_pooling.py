"""What moves the pool: a server's step, parts' states, privacy's noise."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from small_federation import federated_round, play

from bfl.aggregation.pooling import CLIPPED_FRACTION
from bfl.configuration import resolve
from bfl.errors import RunError
from bfl.federation.outgoing import change_update_by
from bfl.federation.parts import Counts
from bfl.federation.privacy import difference
from bfl.posteriors import Manifest, Parameter, Posterior
from strategies.method import Method
from strategies.privacy import PoolNoise, pool_noise
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
    state = method.first_state(posterior(0.0), CLIENTS)
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
        sent = np.full(SIZE, 0.0 if client else 3e39)
        beside = {"control-change-mean": sent, "control-change-point": np.zeros(0, np.float32)}
        return ClientUpdate(client, posterior(0.1), 10, {}, beside)

    words = "the state 'scaffold' holds values of .* that are not finite in float32"
    with np.errstate(over="ignore"), pytest.raises(RunError, match=words):
        rounds({"strategy": "scaffold"}, update, 1)


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
    ("optimizer", "manifest", "warned"),
    [("adam", None, True), ("adam", MOVING, False), ("none", None, False)],
)
def test_steps_that_may_move_statistics_are_warned_of(
    optimizer: str, manifest: Manifest | None, warned: bool
) -> None:
    first = replace(posterior(0.0), point=np.ones(3, np.float32))
    *_, told = play(start=first, rule="nwa", server_optimizer=optimizer, manifest=manifest)
    assert any("moves all 3 point parameters" in text for text in told) is warned


PRIVATE: dict[str, Any] = {
    "model": "mlp",
    "weighting": "equal",
    "outgoing": "clip+noise",
    "round-retries": 0,
}
BY_SERVER: dict[str, Any] = {**PRIVATE, "noise-at": "server", "strategy": "aalv"}


def pulled(mean: float) -> Posterior:
    """Return a posterior whose difference from ``pulled(0.0)`` is 2 ``mean`` long."""
    return Posterior(np.full(4, mean, np.float32), np.ones(4, np.float32))


def test_the_server_refuses_updates_that_its_noise_would_not_hide() -> None:
    """Two clients at 2^28 leave no room for noise in float32: it would show a third one's signs."""
    noise = pool_noise(resolve(BY_SERVER), anew=False)
    assert noise is not None
    assert noise.problem(pulled(0.499), pulled(0.0)) is None
    assert "a difference of length 1.2" in str(noise.problem(pulled(0.6), pulled(0.0)))
    assert noise.problem(pulled(2.0**28), pulled(0.0)) is not None
    # Updates with noise of their own have no bounded length.
    by_clients = pool_noise(resolve(PRIVATE), anew=False)
    assert by_clients is not None
    assert by_clients.problem(pulled(2.0**28), pulled(0.0)) is None


def test_the_server_draws_its_noise_anew_or_from_the_seed() -> None:
    pooled, previous, counts = pulled(0.1), pulled(0.0), Counts(2, 2, 2, 1)
    for anew in (False, True):
        noise = pool_noise(resolve(BY_SERVER), anew=anew)
        assert noise is not None
        once, again = (noise(pooled, previous, counts).digest() for _ in range(2))
        assert pooled.digest() != once
        assert (once != again) is anew


class Clients:
    """Clients that send what they are told, where the server does not refuse it."""

    def __init__(self, sent: Mapping[int, Posterior], seen: list[str | None]) -> None:
        self.size = len(sent)
        self.num_examples = dict.fromkeys(sent, 5)
        self.sent, self.seen = sent, seen

    def train(self, request: TrainingRequest) -> Iterator[ClientUpdate]:
        for client, posterior in self.sent.items():
            update = ClientUpdate(client, posterior, 5, {}, {})
            self.seen.append(request.find_problem(update))
            if self.seen[-1] is None:
                yield update


def test_without_a_client_the_pool_differs_by_no_more_than_its_update_can_be_long() -> None:
    pools: list[Posterior] = []

    class Noted(PoolNoise):
        def __call__(self, pooled: Posterior, previous: Posterior, counts: Counts) -> Posterior:
            pools.append(pooled)
            return super().__call__(pooled, previous, counts)

    configuration = resolve({**BY_SERVER, "clip-norm": (norm := 1e-4)}, check_data=False)
    generator = np.random.default_rng(0)
    previous = Posterior(*(generator.uniform(0.1, 1, 2000).astype("f4") for _ in range(3)))

    def update(client: int) -> Posterior:
        drawer = np.random.default_rng(client)
        moved = [
            v + drawer.normal(0, 1e-3, v.size).astype(v.dtype) for v in vars(previous).values()
        ]
        return change_update_by(configuration.outgoing, Posterior(*moved), previous, drawer)

    method = replace(
        Method.of(configuration), pool_noise=Noted(configuration.outgoing, 0, anew=False)
    )
    updates = {client: update(client) for client in range(50)}
    for those in (updates, {**updates, 0: previous}):
        clients: Any = Clients(those, [])
        state, _ = federated_round(method, ServerState.first(previous, 50, {}), clients, 0)
        assert state.posterior.mean.dtype == np.float32
    apart = 50 * np.linalg.norm(difference(pools[0], pools[1]))
    assert apart == pytest.approx(np.linalg.norm(difference(previous, updates[0])), rel=1e-6)
    assert apart <= norm * (1 + 1e-6)


def test_an_update_that_is_too_long_is_left_out_of_the_round() -> None:
    method = replace(
        Method.of(resolve(BY_SERVER, check_data=False)),
        pool_noise=PoolNoise(resolve(BY_SERVER).outgoing, 0, anew=False),
    )
    seen: list[str | None] = []

    sent = {0: pulled(0.1), 1: pulled(-0.1), 2: pulled(2.0**28)}
    state = ServerState.first(pulled(0.0), 3, {})
    clients: Any = Clients(sent, seen)
    _, report = federated_round(method, state, clients, 0)
    assert [problem is None for problem in seen] == [True, True, False]
    assert CLIPPED_FRACTION not in report.metrics
