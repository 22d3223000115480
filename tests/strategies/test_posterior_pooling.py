import json
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from flwr.app import RecordDict
from flwr.serverapp.strategy import Strategy
from numpy_server import NumpyServer
from small_federation import arguments, make_app, make_grid, shifted

import strategies
from bfl import randomness
from bfl.aggregation.pooling import pool, pooling_rules
from bfl.aggregation.weightings import weightings
from bfl.configuration import resolve
from bfl.engine.serial import SerialGrid
from bfl.errors import ConfigurationError
from bfl.federation.wire import (
    METRICS,
    TrainTask,
    posterior_from_arrays,
    posterior_to_arrays,
    reply_content,
)
from bfl.learning.corrections import corrections
from bfl.posteriors import Posterior
from strategies import PosteriorPooling, make_strategy, strategy_class
from strategies.method import ClientOptions, Method, RunSupport
from strategies.server_state import Round


def start() -> Posterior:
    return Posterior(
        np.arange(3, dtype=np.float32),
        np.array([0.1, 0.2, 0.3], np.float32),
        np.ones(2, np.float32),
    )


def run(grid: SerialGrid, strategy: PosteriorPooling, rounds: int = 1) -> Posterior:
    result = strategy.start(grid, posterior_to_arrays(start()), num_rounds=rounds)
    return posterior_from_arrays(result.arrays)


@pytest.mark.parametrize("rule", pooling_rules.classes(), ids=lambda rule: rule.name)
@pytest.mark.parametrize("weighting", ["train-size", "distance", "abavg", "q-fair"])
def test_every_rule_has_a_strategy_that_pools_with_it(rule: Any, weighting: str) -> None:
    cls = getattr(strategies, rule.__name__.removesuffix("Rule"))
    assert issubclass(cls, Strategy)
    assert cls is strategy_class(rule)
    assert cls.__name__ in dir(strategies)
    scheme = weightings.create(weighting)
    server = NumpyServer(start().size + start().point.size)
    strategy = cls(weighting=scheme, seed=5, scale_floor=0.0, run=RunSupport(server=server))
    if rule().requires() - {
        "gaussian",
        "own-likelihood",
    }:  # of parts that have a half on the clients
        with pytest.raises(ConfigurationError, match=f"pooling '{rule.name}' needs"):
            run(make_grid(make_app()), strategy)
        return
    reports = [dict.fromkeys(scheme.reads, 1.0 + i) for i in range(4)]

    def reply(task: TrainTask, received: Posterior) -> RecordDict:
        sent = shifted(task, received)
        sent[METRICS].update(reports[task.partition_id])  # type: ignore[union-attr]
        return sent

    pooled = run(make_grid(make_app(reply)), strategy)
    clients = [
        Posterior(start().mean + np.float32(i), start().variance, start().point) for i in range(4)
    ]
    expected = pool(
        rule(),
        clients,
        scheme.weigh(clients, [10, 20, 30, 40], start(), server, reports),
        previous=start(),
        generators=[randomness.generator(5, "pooling", 1, i) for i in range(4)],
    )
    assert pooled.digest() == expected.posterior.digest()


def test_a_strategy_takes_its_rules_settings() -> None:
    strategy = strategies.PopulationPooling(population_size=12)
    assert strategy.method.pooling.population_size == 12  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="NoSuchRule"):
        _ = strategies.NoSuchRule


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rule": "conflation", "parts": ["scaffold"]}, ["correction 'scaffold'", "average of"]),
        (
            {"rule": "nwa", "parts": ["scaffold"]},
            ["equal weight", "weighting 'train-size'", "allowed: weighting equal"],
        ),
        (
            {
                "rule": "nwa",
                "weighting": "equal",
                "parts": ["scaffold"],
                "configuration": {"correction": "scaffold", "optimizer": "adam"},
            },
            ["plain gradient", "optimizer 'adam'"],
        ),
        (
            {"rule": "nwa", "weighting": "equal", "configuration": {"strategy": "pvi"}},
            ["prior 'cavity'", "a pool of changed factors"],
        ),
        ({"rule": "factor-changes", "scale_floor": 0.0}, ["cavity", "prior 'fixed'"]),
        (
            {"rule": "aalv", "weighting": "equal", "configuration": {"strategy": "dp-fedavg"}},
            ["outgoing 'noise'", "this Strategy adds none", "noise-at='clients'"],
        ),
        (
            {
                "rule": "aalv",
                "weighting": "equal",
                "configuration": {"strategy": "dp-fedavg", "noise-at": "clients"},
            },
            ["asked once a round", "round-retries"],
        ),
    ],
    ids=str,
)
def test_an_own_server_is_held_to_what_parts_declare(given: Any, words: list[str]) -> None:
    parts = tuple(corrections.create(name) for name in given.get("parts", ()))
    settings = {**given, "parts": parts}
    if values := given.get("configuration"):
        settings["configuration"] = resolve(values, check_data=False, check_parts=False)
    strategy = PosteriorPooling(**arguments(**settings))

    def trains(task: TrainTask, received: Posterior) -> RecordDict:
        raise AssertionError("a client was asked")

    with pytest.raises(ConfigurationError) as refused:
        run(make_grid(make_app(trains)), strategy)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize(
    ("weighting", "as_they_come"), [("train-size", True), ("train-size", False), ("distance", True)]
)
def test_replies_are_pooled_in_the_order_of_partitions(weighting: str, as_they_come: bool) -> None:
    """Sums are rounded, so another order gives other bits: arrival and node ids must not matter."""

    def noisy(task: TrainTask, received: Posterior) -> RecordDict:
        noise = randomness.generator(0, "noise", task.partition_id).standard_normal(3)
        posterior = Posterior(
            (received.mean + noise).astype(np.float32), received.variance, received.point
        )
        return reply_content(posterior, {"num-examples": 7 + task.partition_id})

    class Reversed(SerialGrid):
        def push_messages(self, messages: Any) -> Any:
            return super().push_messages(reversed(list(messages)))

    def digest(grid: SerialGrid) -> str:
        assigned = [np.arange(7 + k) for k in range(8)] if as_they_come else None
        strategy = strategies.Conflation(
            weighting=weightings.create(weighting), client_options=ClientOptions(partition=assigned)
        )
        return run(grid, strategy, rounds=3).digest()

    app = make_app(noisy)
    assert digest(make_grid(app, 8)) == digest(make_grid(app, 8, Reversed))


def test_clients_are_sent_their_examples_and_the_configuration() -> None:
    tasks: dict[int, TrainTask] = {}

    def remember(task: TrainTask, received: Posterior) -> RecordDict:
        tasks[task.partition_id] = task
        held = 9 if task.examples is None else len(task.examples)
        return reply_content(received, {"num-examples": held})

    partition = [np.array([5, 3, 1]), None, np.array([2])]
    strategy = strategies.Conflation(
        **arguments(
            weighting=weightings.create("equal"),
            partition=partition,
            configuration=resolve({"seed": 4, "inference": "flipout"}),
            num_classes=7,
        )
    )
    run(make_grid(make_app(remember), 3), strategy)
    assert tasks[0].examples is not None
    assert tasks[0].examples.tolist() == [5, 3, 1]
    assert tasks[1].examples is None
    sent = json.loads(tasks[2].configuration)
    assert (sent["seed"], sent["inference"]) == (4, "flipout")
    assert tasks[2].num_classes == 7


@pytest.mark.parametrize("fault", ["raises", "sends no numbers"])
def test_an_unusable_reply_is_left_out_and_counted(fault: str) -> None:

    def sometimes(task: TrainTask, received: Posterior) -> RecordDict:
        if task.partition_id != 2:
            return shifted(task, received)
        if fault == "raises":
            raise RuntimeError("out of memory")
        nothing = Posterior(received.mean * np.float32(np.nan), received.variance, received.point)
        return reply_content(nothing, {"num-examples": 1})

    rounds: list[Round] = []
    strategy = strategies.Conflation(
        **arguments(weighting=weightings.create("equal"), on_round=rounds.append)
    )
    pooled = run(make_grid(make_app(sometimes)), strategy)
    counts = [rounds[0].metrics[key] for key in ("clients", "failures", "refused")]
    assert counts == ([3, 1, 0] if fault == "raises" else [3, 0, 1])
    expected = start().mean + (0 + 1 + 3) / 3
    np.testing.assert_allclose(pooled.mean, expected, rtol=1e-6)


def test_a_runs_settings_reach_its_strategy() -> None:
    values = {"clients": 3, "max-examples": 77, "seed": 3, "node-timeout": 9.0}
    values |= {"min-clients": 2.0, "round-retries": 5}
    declared = [*fields(strategies.PosteriorPooling), *fields(ClientOptions)]
    shared = {each.name for each in declared} & vars(resolve({}).keys).keys()
    shared -= vars(Method.of(resolve({}))).keys()
    assert shared == {name.replace("-", "_") for name in values}
    configuration = resolve({**values, "defence": "winsorization", "scale-floor": 1e-3})
    strategy = make_strategy(configuration, 10, [None] * 3)
    assert strategy.method == Method.of(configuration)
    for name in shared:
        given = getattr(configuration.keys, name)
        options = strategy.client_options
        owner = options if hasattr(options, name) else strategy
        assert getattr(owner, name) == given != getattr(resolve({}).keys, name), name
