"""Every Strategy is one of Flower's: its start, its wrappers and its mods, with any ClientApp."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    Result,
    Strategy,
)
from small_federation import arguments, make_app, make_grid, make_training_app

import strategies
from bfl.engine.serial import SerialGrid
from bfl.errors import ConfigurationError, RunError
from bfl.federation.wire import CONFIG, posterior_from_arrays, posterior_to_arrays, reply_content
from bfl.posteriors import Posterior
from strategies import PosteriorPooling, strategy_classes

CLIENTS = 4
START = Posterior(
    np.arange(3, dtype=np.float32), np.full(3, 0.1, np.float32), np.ones(1, np.float32)
)
OWN = [
    strategy
    for strategy in strategy_classes().values()
    if strategy.rule_class and not strategy.rule_class().requires() - {"gaussian", "own-likelihood"}
]
"""All but those whose rule needs a part on the clients."""


def learn(message: Message, context: Context) -> RecordDict:
    """Learn something of the node's own, without a word of bfl's but for the arrays."""
    client = int(context.node_config["partition-id"])
    received = posterior_from_arrays(message.content["arrays"])  # type: ignore[arg-type]
    factor = np.float32(1 / (2 + client))
    learnt = Posterior(
        received.mean + factor, received.variance * (1 - factor / 4), received.point + factor
    )
    return reply_content(learnt, {"num-examples": 10 + client, "loss": 1.5 + client})


def plain_app(mods: Sequence[Any] = ()) -> ClientApp:
    """Return a ClientApp as Flower's templates have it: it answers no query."""
    app = ClientApp()

    @app.train(mods=list(mods))
    def train(message: Message, context: Context) -> Message:
        return Message(learn(message, context), reply_to=message)

    return app


def run(start: Callable[..., Result], app: ClientApp | None = None, rounds: int = 3) -> Result:
    grid = make_grid(app or plain_app(), CLIENTS)
    return start(grid, posterior_to_arrays(START), num_rounds=rounds)


def flowers(strategy: Strategy) -> Callable[..., Result]:
    """Return Flower's own ``start`` of a Strategy."""
    return lambda *given, **more: Strategy.start(strategy, *given, **more)


def digest(result: Result) -> str:
    arrays: Any = result.arrays
    return posterior_from_arrays(arrays).digest()


@pytest.mark.parametrize("weighting", ["train-size", "max-discrepancy"])
@pytest.mark.parametrize("strategy", OWN, ids=lambda strategy: strategy.__name__)
def test_flowers_start_gives_the_bits_of_ours(
    strategy: type[PosteriorPooling], weighting: str
) -> None:
    given = {"weighting": weighting, "seed": 3, "server_optimizer": "momentum"}
    found = []
    for app, partition in ((make_training_app(learn), [None] * CLIENTS), (plain_app(), None)):
        make = partial(strategy, **arguments(clients=CLIENTS, partition=partition, **given))
        found += [run(start, app) for start in (make().start, flowers(make()))]
    assert {digest(result) for result in found} == {digest(found[0])} != {START.digest()}
    assert sorted(found[0].train_metrics_clientapp) == [1, 2, 3]
    for ours, theirs in (found[:2], found[2:]):
        assert dict(ours.train_metrics_clientapp) == dict(theirs.train_metrics_clientapp)


def test_a_round_begins_with_the_arrays_that_it_is_given() -> None:
    strategy = strategies.NaiveWeightedAveraging(**arguments(weighting="equal", clients=CLIENTS))
    grid = make_grid(plain_app(), CLIENTS)
    other = Posterior(START.mean + 7, START.variance, START.point)
    for number, begun in ((1, START), (2, other)):
        given = posterior_to_arrays(begun)
        messages = list(strategy.configure_train(number, given, ConfigRecord(), grid))
        arrays: Any = next(iter(messages)).content["arrays"]
        assert posterior_from_arrays(arrays).digest() == begun.digest()
        pooled, _ = strategy.aggregate_train(number, grid.send_and_receive(messages))
        assert pooled is not None
        step = posterior_from_arrays(pooled).mean - begun.mean
        np.testing.assert_allclose(step, np.mean([1 / (2 + i) for i in range(CLIENTS)]), rtol=1e-5)
    # Who answers in another's place has no second update.
    messages = list(strategy.configure_train(3, given, ConfigRecord(), grid))
    first, second, *_ = replies = list(grid.send_and_receive(messages))
    second.metadata.__dict__["_src_node_id"] = first.metadata.src_node_id
    strategy.aggregate_train(3, replies)
    assert len(strategy.finished.clients) == CLIENTS - 1


def wrappers() -> dict[str, tuple[Any, dict[str, Any], list[Any]]]:
    fixed = {"noise_multiplier": 0.0, "clipping_norm": 1e3, "num_sampled_clients": CLIENTS}
    adaptive = {"noise_multiplier": 1e-9, "num_sampled_clients": CLIENTS}
    adaptive |= {"initial_clipping_norm": 1e3, "clip_norm_lr": 1e-9, "clipped_count_stddev": 1.0}
    return {
        "server-fixed": (DifferentialPrivacyServerSideFixedClipping, fixed, []),
        "client-fixed": (DifferentialPrivacyClientSideFixedClipping, fixed, [fixedclipping_mod]),
        "server-adaptive": (DifferentialPrivacyServerSideAdaptiveClipping, adaptive, []),
        "client-adaptive": (
            DifferentialPrivacyClientSideAdaptiveClipping,
            adaptive,
            [adaptiveclipping_mod],
        ),
    }


@pytest.mark.parametrize("wrapper", wrappers())
def test_flowers_wrappers_wrap_a_strategy(wrapper: str) -> None:
    strategy = strategies.Conflation
    wraps, settings, mods = wrappers()[wrapper]
    wrapped = run(
        wraps(strategy(**arguments(weighting="equal", clients=CLIENTS)), **settings).start,
        plain_app(mods),
    )
    bare = run(strategy(**arguments(weighting="equal", clients=CLIENTS)).start, plain_app())
    assert wrapped.train_metrics_clientapp[3]["clients"] == CLIENTS
    found, expected = (posterior_from_arrays(each.arrays) for each in (wrapped, bare))
    for name, vector in expected.vectors().items():
        np.testing.assert_allclose(getattr(found, name), vector, rtol=2e-4, atol=1e-5)


def test_a_round_that_a_wrapper_leaves_out_is_gone_on_from() -> None:
    """Flower's wrappers aggregate nothing when a client has failed."""
    failed: list[int] = []

    def fail_once(message: Message, context: Context) -> RecordDict:
        config: Any = message.content[CONFIG]
        if config["server-round"] == 2 and config["partition-id"] == 1:
            failed.append(1)
            raise RuntimeError("once")
        return learn(message, context)

    settings = {"noise_multiplier": 0.0, "clipping_norm": 1e3, "num_sampled_clients": CLIENTS}
    wrapped = DifferentialPrivacyServerSideFixedClipping(
        strategies.Conflation(server_optimizer="momentum"), **settings
    )
    result = run(wrapped.start, make_training_app(fail_once))
    assert failed == [1]
    assert sorted(result.train_metrics_clientapp) == [1, 3]


def test_the_first_arrays_are_evaluated_on_the_server_as_flower_does() -> None:
    seen: list[int] = []

    def judge(number: int, arrays: ArrayRecord) -> MetricRecord | None:
        seen.append(number)
        return MetricRecord({"number": number})

    for start in (strategies.Conflation().start, flowers(strategies.Conflation())):
        grid = make_grid(plain_app(), CLIENTS)
        result = start(grid, posterior_to_arrays(START), num_rounds=2, evaluate_fn=judge)
        assert sorted(result.evaluate_metrics_serverapp) == [0, 1, 2]
    assert seen == [0, 1, 2] * 2


def test_hooks_that_flower_cannot_call_are_refused() -> None:
    """A masked round takes several messages; a round is pooled once it has begun."""
    with pytest.raises(ConfigurationError, match="call this Strategy's start"):
        run(flowers(strategies.Conflation(exchange="masked")), make_app())
    with pytest.raises(RunError, match="configure_train comes first"):
        strategies.Conflation().aggregate_train(1, [])


@pytest.mark.parametrize("clients", [3, 5])
def test_a_wrong_number_of_plain_clients_is_refused(clients: int) -> None:
    strategy = strategies.Conflation(**arguments(clients=clients, node_timeout=0.2))
    with pytest.raises((ConfigurationError, RunError), match=f"{CLIENTS}.*{clients}|{clients}.*"):
        run(strategy.start)


@pytest.mark.parametrize("asks", [False, True])
def test_clients_are_asked_only_where_something_is_needed(asks: bool) -> None:
    """A ClientApp that answers no query prints a traceback for each."""
    sent: list[str] = []

    class WatchedGrid(SerialGrid):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            given = list(messages)
            sent.extend(message.metadata.message_type for message in given)
            return super().push_messages(given)

    strategy = strategies.Conflation(**arguments(partition=[None] * CLIENTS if asks else None))
    app = make_training_app(learn) if asks else plain_app()
    strategy.start(make_grid(app, CLIENTS, WatchedGrid), posterior_to_arrays(START), 2)
    assert sent == ["query"] * CLIENTS * asks + ["train"] * CLIENTS * 2


PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "flower.md"
SERVER, NUMPY, TORCH, WRAPPED = re.findall(
    r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
)


def module(text: str, **names: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": "of_the_page", **names}
    exec(compile(text, "flower.md", "exec"), found)
    return found


def test_the_pages_numpy_client_takes_part(capsys: pytest.CaptureFixture[str]) -> None:
    client, server = module(NUMPY), module(SERVER)
    context = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config={})
    server["server"](make_grid(client["app"], CLIENTS), context)
    assert "Posterior(mean=" in capsys.readouterr().out
    wrapped = module(WRAPPED, Conflation=strategies.Conflation)["wrapped"]
    prior = Posterior(np.zeros(2, np.float32), np.full(2, 100, np.float32))
    result = wrapped.start(make_grid(client["app"], CLIENTS), posterior_to_arrays(prior), 1)
    mean = posterior_from_arrays(result.arrays).mean
    np.testing.assert_allclose(mean, [1, -2], atol=0.5)


def test_a_client_in_pytorch_and_one_in_numpy_make_one_posterior() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed, and bfl does not need it")
    numpy, torch = module(NUMPY)["app"], module(TORCH)["app"]
    both = ClientApp()

    @both.train()
    def train(message: Message, context: Context) -> Message:
        theirs: Message = (torch if context.node_config["partition-id"] else numpy)(
            message, context
        )
        return theirs

    prior = Posterior(np.zeros(2, np.float32), np.full(2, 100, np.float32))
    strategy = strategies.DistributedWeightConsolidation(weighting="equal")
    result = strategy.start(make_grid(both, 2), posterior_to_arrays(prior), num_rounds=1)
    pooled = posterior_from_arrays(result.arrays)
    assert result.train_metrics_clientapp[1]["clients"] == 2
    np.testing.assert_allclose(pooled.mean, [1, -2], atol=0.4)
    np.testing.assert_allclose(pooled.variance, 1 / (1 / 100 + 60 / 0.5), rtol=0.05)
