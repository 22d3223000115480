"""A Strategy's own ``start``: what Flower's lacks.

Replies are pooled as they come, nodes are asked again, a round is made again without updates that
turn out to be implausible, runs go on, and clients add up for the closing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from bfl.closing.base import Known
from bfl.federation.wire import initial_posterior, posterior_to_arrays
from bfl.learning.networks.parametrizations import SOFTPLUS
from strategies.closing import CLOSING, close
from strategies.federation import discover, number_nodes
from strategies.flower_clients import FlowerClients, RetryPolicy, TaskTemplate
from strategies.masked.round import check_masked
from strategies.messaging import UsableReplies, exchange
from strategies.plausibility import ImplausibleUpdatesError
from strategies.preflight import (
    check_memory,
    check_method,
    known_configuration,
    text_for_clients,
)
from strategies.run_support import Round, Warnings
from strategies.server_state import ServerState, UnfinishedRounds

if TYPE_CHECKING:
    from strategies.posterior_pooling import PosteriorPooling

UNFINISHED = "pooled-round"
"""The folder in a run's, with the round that is pooled and not yet refined."""


def begin(
    strategy: PosteriorPooling, grid: Grid, arrays: ArrayRecord, timeout: float, num_rounds: int
) -> None:
    """Wait for the nodes and refuse what does not go together, before anybody trains.

    Args:
        timeout: Seconds without any reply after which a round goes on without the rest.

    Raises:
        ConfigurationError: Something does not go together.
        RunError: Nodes are missing.
    """
    method, run = strategy.method, strategy.run
    initial = initial_posterior(arrays, strategy.manifest)
    known = known_configuration(strategy.configuration)
    check_method(method, initial, known, strategy.server, strategy.round_retries, strategy.manifest)
    method.declared(initial)  # refuses what does not fit before anybody trains
    # Examples are assigned by partition ids, parts keep clients' states by them, and masks are
    # agreed on by them; the clients of this package have a configuration, and say what they hold.
    by_partition = bool(
        known or strategy.partition is not None or method.parts or method.exchange.secure_sums
    )
    wait_for_nodes = discover if by_partition else number_nodes
    federation = run.federation or wait_for_nodes(grid, strategy.clients, strategy.node_timeout)
    strategy.warnings = Warnings(strategy.on_warning)
    strategy.participants = clients = FlowerClients(
        grid,
        federation,
        TaskTemplate(
            configuration=text_for_clients(strategy.configuration),
            configuration_without_paths=text_for_clients(strategy.configuration, paths=False),
            num_classes=strategy.num_classes,
            partition=strategy.partition,
            test_partition=run.test_partition
            if known and known.keys.evaluated_by == "clients"
            else None,
            run_folder=run.folder if federation.simulated else "",
            run_key=run.key,
            calibration_share=known.held_back_share if known else 0.0,
            counts_all_examples=bool(known and known.inference.counts_all_examples),
        ),
        RetryPolicy(timeout, strategy.min_clients, strategy.round_retries),
        max_examples=strategy.max_examples,
        manifest=strategy.manifest,
        warn=strategy.warnings.of_client,
    )
    selected = {
        number: method.sampling.sample(strategy.seed, number, federation.size)
        for number in range(1, max(num_rounds, 1) + 1)
    }
    if secure_sums := method.exchange.secure_sums:
        check_masked(method, secure_sums, initial, known, clients, selected)
    if not method.server_optimizer.idle and initial.point.size and not strategy.manifest:
        strategy.on_warning(
            f"server-optimizer '{method.server_optimizer.name}' moves all {initial.point.size} "
            "point parameters, and could lead a moving variance of batch normalisation below 0: "
            "this Strategy has no manifest, which would say what are moving statistics; give it as "
            "manifest (bfl.posteriors.Manifest) if the network has some"
        )
    check_memory(method, initial, len(selected[1]), keeps_rounds=bool(run.folder))
    strategy.state = run.state or ServerState.first(
        initial, federation.size, method.begin(initial, federation.size)
    )
    strategy.parametrization = known.inference.parametrization if known else SOFTPLUS
    strategy.unfinished = None
    if run.folder:
        # The run's key stands for a configuration that a resume has compared already, but for keys
        # that change no result.
        of_run = run.key or text_for_clients(strategy.configuration)
        strategy.unfinished = UnfinishedRounds(
            Path(run.folder) / UNFINISHED, f"{of_run} {strategy.seed} {method!r}"
        )


def run_rounds(
    strategy: PosteriorPooling,
    grid: Grid,
    result: Result,
    num_rounds: int,
    timeout: float,
    train_config: ConfigRecord,
    evaluate_config: ConfigRecord,
    evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None,
    should_stop: Callable[[int, Result], bool] | None,
) -> Result:
    """Run the rounds that are left, and return Flower's result; see ``PosteriorPooling.start``."""
    arrays = posterior_to_arrays(strategy.state.posterior)
    first = evaluate_fn(0, arrays) if evaluate_fn and not strategy.state.server_round else None
    if first is not None:
        result.evaluate_metrics_serverapp[0] = first
    started = time.perf_counter()
    while (number := strategy.state.server_round + 1) <= num_rounds:
        replies = _replies(strategy, number, arrays, train_config, grid)
        try:
            pooled, metrics = strategy.aggregate_train(number, replies)
        except ImplausibleUpdatesError as error:  # again, without those who sent them
            strategy.implausible |= error.reasons
            continue
        strategy.implausible = {}
        seconds = time.perf_counter() - started
        if pooled is not None and metrics is not None:
            result.arrays = arrays = pooled
            result.train_metrics_clientapp[number] = metrics
        asked = list(strategy.configure_evaluate(number, arrays, evaluate_config, grid))
        means = strategy.aggregate_evaluate(number, exchange(grid, asked, timeout))
        if means is not None:
            result.evaluate_metrics_clientapp[number] = means
        evaluated = evaluate_fn(number, arrays) if evaluate_fn else None
        if evaluated is not None:
            result.evaluate_metrics_serverapp[number] = evaluated
        last = _hand_over(strategy, seconds, evaluated or {})
        if last or (should_stop is not None and should_stop(number, result)):
            break
        started = time.perf_counter()
    if strategy.unfinished:
        strategy.unfinished.clear()
    return result


def _replies(
    strategy: PosteriorPooling,
    server_round: int,
    arrays: ArrayRecord,
    config: ConfigRecord,
    grid: Grid,
) -> Iterable[Message]:
    """Return the replies of a round as they come; none where clients' sums alone are seen."""
    if strategy.method.exchange.secure_sums:
        strategy.begin_round(server_round, arrays, config, grid)
        return ()
    messages = list(strategy.configure_train(server_round, arrays, config, grid))
    if not messages or strategy.request is None:
        return ()
    clients = strategy.participants
    replies = clients.replies(strategy.request, messages)
    if strategy.run.on_replies is None:
        return replies
    return _shown(replies, partial(strategy.run.on_replies, len(messages)), clients.usable)


def _shown(
    replies: Iterable[Message], show: Callable[[Mapping[str, int]], None], usable: UsableReplies
) -> Iterator[Message]:
    """Yield replies, and show what each was when the next is waited for."""
    show(usable.counts)
    for reply in replies:
        yield reply
        show(usable.counts)


def _hand_over(strategy: PosteriorPooling, seconds: float, evaluated: Mapping[str, Any]) -> bool:
    """Give a round that is over to whoever looks on; return whether it is the last."""
    state, pooled, clients = strategy.state, strategy.pooled, strategy.participants
    if pooled is None:
        return False
    of_models = strategy.run.evaluate_models(state)
    metrics: dict[str, Any] = {**pooled.metrics, **evaluated, **of_models}
    strategy.warnings.of_numbers(state.server_round, metrics)
    finished = Round(
        state, metrics, seconds, pooled.entries, clients.suspicion, clients.left_out(pooled)
    )
    return bool(strategy.on_round and strategy.on_round(finished))


def close_federation(strategy: PosteriorPooling) -> Known | None:
    """Have clients add up what the closing asks for; return what it finds, None for none.

    Raises:
        RunError: Too few clients have sent usable sums.
    """
    run, state = strategy.run, strategy.state
    return close(
        strategy.method,
        replace(state, posterior=run.to_close(state.posterior)),
        strategy.participants,
        strategy.manifest,
        Path(run.folder) / CLOSING if run.folder else None,
        run.on_sums,
        run.before_sums,
    )
