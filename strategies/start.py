"""A Strategy's own ``start``: what Flower's lacks.

Replies are pooled as they come, nodes are asked again, runs go on, and clients add up for the
closing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from logging import WARNING
from typing import TYPE_CHECKING

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from bfl.deployment.client_list import bound_nodes_file
from bfl.engine.flower import log
from bfl.federation.wire import initial_posterior, posterior_to_arrays
from bfl.learning.networks.parametrizations import SOFTPLUS, Parametrization
from strategies.closing import close
from strategies.federation import discover, number_nodes
from strategies.flower_clients import FlowerClients
from strategies.preflight import check_method
from strategies.round import TrainingRequest, round_request
from strategies.server_state import ServerState

if TYPE_CHECKING:
    from strategies.posterior_pooling import PosteriorPooling

FEW_EFFECTIVE_CLIENTS = 2.0 + 1e-6
"""Effective number of clients, of three or more, up to which one, or two alike, outweigh all."""


def run_rounds(
    strategy: PosteriorPooling,
    grid: Grid,
    initial_arrays: ArrayRecord,
    num_rounds: int,
    timeout: float,
    train_config: ConfigRecord,
    evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None,
    should_stop: Callable[[int, Result], bool] | None,
) -> Result:
    """Run the rounds that are left and the closing; see ``PosteriorPooling.start``."""
    run, masked = strategy.run, strategy.method.exchange.secure_sums
    strategy.running = running = begin(strategy, grid, initial_arrays, timeout, num_rounds)
    clients, arrays = running.clients, posterior_to_arrays(running.state.posterior)
    result, outweighed = Result(arrays=initial_arrays), False
    first = evaluate_fn(0, arrays) if evaluate_fn and not running.state.server_round else None
    if first is not None:
        result.evaluate_metrics_serverapp[0] = first
    while (number := running.state.server_round + 1) <= num_rounds:
        started = time.perf_counter()
        replies: Iterable[Message] = ()
        if masked:  # clients are asked while their sum is made
            begin_round(strategy, number, arrays, train_config, grid)
        else:
            messages = list(strategy.configure_train(number, arrays, train_config, grid))
            replies = clients.replies(f"round {number}", messages)
        arrays, metrics = strategy.aggregate_train(number, replies)
        seconds = time.perf_counter() - started
        result.arrays, result.train_metrics_clientapp[number] = arrays, metrics
        evaluated = evaluate_fn(number, arrays) if evaluate_fn else None
        if evaluated is not None:
            result.evaluate_metrics_serverapp[number] = evaluated
        pooled, of_models = strategy.pooled, run.evaluate_models(running.state)
        effective, count = pooled.metrics.get("effective-clients", math.inf), len(pooled.clients)
        if count >= 3 and effective <= FEW_EFFECTIVE_CLIENTS and not outweighed:
            outweighed = True
            run.warn(
                f"round {number}: the weights of {count} clients are worth {effective:.3g} "
                f"(effective-clients, weighting {strategy.method.weighting.name}); later rounds "
                "have the number in their records alone"
            )
        measured = {**pooled.metrics, **(evaluated or {}), **of_models}
        is_last = run.end_round(replace(pooled, metrics=measured, seconds=seconds))
        if is_last or (should_stop and should_stop(number, result)):
            break
    strategy.closed = close(strategy.method, running.state, clients, run)
    return result


def begin_round(
    strategy: PosteriorPooling,
    server_round: int,
    arrays: ArrayRecord,
    config: ConfigRecord,
    grid: Grid,
) -> tuple[TrainingRequest, RunningFederation]:
    """Begin a round with some arrays, of a new federation if it is no later one of the last."""
    running, run = strategy.running, strategy.run
    if running is None or running.grid is not grid or server_round <= running.last:
        running = begin(strategy, grid, arrays, strategy.default_timeout, server_round)
        strategy.running = running
    # A wrapper may have changed the arrays, or left out a round.
    posterior = initial_posterior(arrays, run.manifest)
    state = replace(running.state, server_round=server_round - 1, posterior=posterior)
    request = round_request(strategy.method, state, strategy.seed)
    strategy.request, running.last, running.clients.more = request, server_round, config
    return request, running


@dataclass
class RunningFederation:
    """A federation whose rounds have begun.

    Attributes:
        state: Where it stands after the last round that is over.
        last: The last round that has begun.
        parametrization: The clients' network's, which may compute with other variances than a
            posterior has.
    """

    grid: Grid
    clients: FlowerClients
    state: ServerState
    last: int
    parametrization: Parametrization


def begin(
    strategy: PosteriorPooling, grid: Grid, arrays: ArrayRecord, timeout: float, num_rounds: int
) -> RunningFederation:
    """Wait for the nodes and refuse what does not go together, before anybody trains.

    ``timeout``: seconds without any reply after which a round goes on without the rest.
    """
    method, run, options = strategy.method, strategy.run, strategy.client_options
    initial = initial_posterior(arrays, run.manifest)
    configuration = options.configuration
    check_method(method, initial, configuration, run.server, options.round_retries, run.manifest)
    method.declared(initial)  # refuses what does not fit before anybody trains
    # Examples are assigned by partition ids, parts keep clients' states by them, and masks are
    # agreed on by them; the clients of this package have a configuration, and say what they hold.
    # A list of clients binds each node's key to a partition.
    by_partition = bool(
        configuration
        or options.partition is not None
        or method.parts
        or method.exchange.secure_sums
        or bound_nodes_file()
    )
    wait_for_nodes = discover if by_partition else number_nodes
    nodes = run.federation or wait_for_nodes(grid, options.clients, options.node_timeout)
    if not (by_partition or options.clients or run.federation):
        text = "begins with the %d nodes that are there; ClientOptions(clients=…) waits for more"
        log(WARNING, text, nodes.size)
    clients = FlowerClients(grid, nodes, options, run, silence=timeout, warn=run.warn)
    if method.exchange.secure_sums:
        from strategies.masked import check_masked

        rounds = range(1, max(num_rounds, 1) + 1)
        selected = {n: method.sampling.sample(strategy.seed, n, nodes.size) for n in rounds}
        check_masked(method, initial, configuration, clients, selected)
    if method.server_optimizer.active and initial.point.size and not run.manifest:
        run.warn(
            f"server-optimizer '{method.server_optimizer.name}' moves all {initial.point.size} "
            "point parameters; if some are moving statistics, name them with "
            "run=RunSupport(manifest=…) (bfl.posteriors.Manifest)"
        )
    state = run.state or ServerState.first(
        initial, nodes.size, method.begin_server_states(initial, nodes.size)
    )
    parametrization = configuration.inference.parametrization if configuration else SOFTPLUS
    return RunningFederation(grid, clients, state, state.server_round, parametrization)
