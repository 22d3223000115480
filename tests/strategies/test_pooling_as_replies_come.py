"""Pooling as replies come gives what pooling them together gives, and holds next to nothing."""

import gc
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from flwr.app import RecordDict
from small_federation import arguments, make_app, make_grid

import strategies
import strategies.round as module
from bfl import randomness
from bfl.aggregation.defences import Defence
from bfl.aggregation.pooling import pool, pooling_rules
from bfl.aggregation.weightings import Weighting, weightings
from bfl.engine.serial import SerialGrid
from bfl.federation.wire import TrainTask, posterior_from_arrays, posterior_to_arrays, reply_content
from bfl.learning.priors import priors
from bfl.posteriors import Posterior
from strategies import updates as received
from strategies.method import Method
from strategies.round import round_request, weigh
from strategies.server_state import ServerState
from strategies.updates import ClientUpdate

K, D, P = 9, 5000, 7
COUNTS = [3 + (5 * k) % 7 for k in range(K)]
BY_COUNTS = [name for name in weightings.names() if weightings.get(name).counts_only]


def start() -> Posterior:
    rng = np.random.default_rng(0)
    return Posterior(
        rng.standard_normal(D, np.float32),
        rng.uniform(0.01, 1, D).astype(np.float32),
        rng.standard_normal(P, np.float32),
    )


def trained(partition_id: int, received: Posterior) -> Posterior:
    rng = randomness.generator(3, "trained", partition_id)
    return Posterior(
        received.mean + rng.standard_normal(D, np.float32),
        received.variance * rng.uniform(0.5, 2, D).astype(np.float32),
        received.point + rng.standard_normal(P, np.float32),
    )


def honest(task: TrainTask, received: Posterior) -> RecordDict:
    count = COUNTS[task.partition_id]
    return reply_content(trained(task.partition_id, received), {"num-examples": count})


def make(rule: str, weighting: str, **settings: Any) -> strategies.PosteriorPooling:
    if "cavity" in pooling_rules.create(rule).requires():
        settings = {"parts": (priors.create("cavity"),), "scale_floor": 0.0, **settings}
    settings = {
        "partition": [np.arange(count) for count in COUNTS],
        "on_warning": lambda text: None,
        **settings,
    }
    return strategies.PosteriorPooling(
        **arguments(
            rule=pooling_rules.create(rule),
            weighting=weightings.create(weighting),
            seed=5,
            **settings,
        )
    )


def run(strategy: strategies.PosteriorPooling, reply: Any = honest, rounds: int = 1) -> Posterior:
    grid = make_grid(make_app(reply), K)
    result = strategy.start(grid, posterior_to_arrays(start()), num_rounds=rounds)
    return posterior_from_arrays(result.arrays)


def together(rule: str, weighting: str, who: list[int], counts: list[int]) -> Posterior:
    """Return what ``pool`` makes of some clients."""
    clients = [trained(k, start()) for k in who]
    weights = weightings.create(weighting).weigh(clients, [counts[k] for k in who], start())
    generators = [randomness.generator(5, "pooling", 1, k) for k in who]
    return pool(
        pooling_rules.create(rule), clients, weights, previous=start(), generators=generators
    ).posterior


@pytest.fixture
def came(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Count the rounds that are pooled as replies come."""
    calls: list[str] = []
    real = module.foreseen_weights

    def counted(weighting: Weighting, num_examples: Any) -> Any:
        calls.append(weighting.name)
        return real(weighting, num_examples)

    monkeypatch.setattr(module, "foreseen_weights", counted)
    return calls


@pytest.mark.parametrize("weighting", BY_COUNTS)
@pytest.mark.parametrize("rule", pooling_rules.names())
def test_the_bits_are_those_of_pooling_together(rule: str, weighting: str, came: list[str]) -> None:
    got = run(make(rule, weighting))
    assert len(came) == (0 if pooling_rules.get(rule).weights_are_fractions else 1)
    assert got.digest() == together(rule, weighting, list(range(K)), COUNTS).digest()


@pytest.mark.parametrize("rule", pooling_rules.names())
def test_those_that_fail_are_as_if_they_had_not_been_asked(rule: str) -> None:
    weighting = "train-size"

    def faulty(task: TrainTask, received: Posterior) -> RecordDict:
        if task.partition_id in (0, 4):
            raise RuntimeError("no")
        if task.partition_id == 6:
            return reply_content(received, {"num-examples": 0})
        return honest(task, received)

    got = run(make(rule, weighting), faulty)
    expected = together(rule, weighting, [1, 2, 3, 5, 7, 8], COUNTS)
    np.testing.assert_allclose(got.mean, expected.mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(got.variance, expected.variance, rtol=1e-6)
    np.testing.assert_allclose(got.point, expected.point, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("weighting", ["train-size", "distance"])
@pytest.mark.parametrize("lie", [2**53, 1])
def test_a_client_does_not_choose_its_own_weight(weighting: str, lie: float) -> None:
    def lying(task: TrainTask, received: Posterior) -> RecordDict:
        count = lie if task.partition_id == 2 else COUNTS[task.partition_id]
        return reply_content(trained(task.partition_id, received), {"num-examples": count})

    def silent(task: TrainTask, received: Posterior) -> RecordDict:
        if task.partition_id == 2:
            raise RuntimeError("no")
        return honest(task, received)

    told: list[str] = []
    strategy = make("ws", weighting, on_warning=told.append)
    got = run(strategy, lying)
    assert got.digest() == run(make("ws", weighting), silent).digest()
    assert any(
        f"round 1, client 2: update refused: num-examples is {lie!r}; this client holds {COUNTS[2]}"
        in text
        for text in told
    )


@pytest.mark.parametrize(
    ("weighting", "settings"),
    [
        ("distance", {}),
        ("max-discrepancy", {}),
        ("train-size", {"defence": "winsorization"}),
        ("train-size", {"partition": [None] * K}),  # numbers of examples that are not known
    ],
)
def test_what_needs_all_updates_gets_them(
    weighting: str, settings: dict[str, Any], came: list[str]
) -> None:
    got = run(make("ws", weighting, **settings))
    assert not came
    if "defence" not in settings:
        assert got.digest() == together("ws", weighting, list(range(K)), COUNTS).digest()


@pytest.mark.usefixtures("quick_collections")
def test_few_updates_are_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[Posterior]] = []
    most = 0
    real = received.read_update

    def read(*given: Any, **named: Any) -> ClientUpdate:
        nonlocal most
        update = real(*given, **named)
        gc.collect()
        alive.append(weakref.ref(update.posterior))
        most = max(most, sum(ref() is not None for ref in alive))
        return update

    monkeypatch.setattr(received, "read_update", read)
    clients = 40

    def reply(task: TrainTask, received: Posterior) -> RecordDict:
        return reply_content(received, {"num-examples": 5})

    strategy = make("ws", "train-size", partition=[np.arange(5)] * clients)
    grid: SerialGrid = make_grid(make_app(reply), clients)
    strategy.start(grid, posterior_to_arrays(start()), num_rounds=1)
    assert len(alive) == clients
    assert most <= 3


@pytest.mark.parametrize("weighting", ["train-size", "distance"])
def test_an_update_is_looked_at_once_when_it_comes_and_not_by_the_pool(
    weighting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []
    check = Posterior.check

    def checked(self: Posterior, like: Posterior | None = None) -> None:
        if not self.known_sound:
            looked.append(self.mean.tobytes())
        check(self, like)

    monkeypatch.setattr(Posterior, "check", checked)
    run(make("conflation", weighting))
    updates = {trained(k, start()).mean.tobytes() for k in range(K)}
    assert sorted(found for found in looked if found in updates) == sorted(updates)


class Watching(Defence):
    """Changes nothing, and need not see all updates together."""

    active: ClassVar[bool] = False

    def protect(self, posteriors: Sequence[Posterior]) -> list[Posterior]:
        raise AssertionError("all updates were held together")


def test_an_idle_defence_waits_for_no_other_update() -> None:
    defence = Watching()
    assert not defence.has()
    pending: list[int] = []

    def updates() -> Iterator[ClientUpdate]:
        for client in range(3):
            pending.append(client)
            yield ClientUpdate(client, start(), 5, {})

    method = Method.of_parts(
        sampling="random",
        pooling="conflation",
        weighting="train-size",
        defence=defence,
        server_optimizer="none",
    )
    request = round_request(method, ServerState.first(start(), 3), 0)
    for update, weight in weigh(request, updates(), dict.fromkeys(range(3), 5), None):
        assert weight == 1 / 3
        assert pending == [update.partition_id]
        pending.clear()
