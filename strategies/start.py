"""A Strategy's own ``start``: what Flower's lacks.

Replies are pooled as they come, nodes are asked again, runs go on, and clients add up for the
closing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from logging import WARNING
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from bfl.aggregation.pooling import PoolingRule, pool
from bfl.aggregation.server import Server, UsesServer
from bfl.closing.base import schedule
from bfl.configuration import Configuration, contradictions, resolve
from bfl.configuration.component_slots import SLOTS
from bfl.data.datasets.server_data import HELD_BACK
from bfl.deployment.client_list import bound_nodes_file
from bfl.engine.flower import log
from bfl.errors import ConfigurationError, PosteriorError
from bfl.federation.parts import TwoSidedPart
from bfl.federation.wire import initial_posterior, posterior_to_arrays
from bfl.posteriors import Manifest, Posterior
from bfl.registry import kebab
from strategies.closing import close, last_layer
from strategies.federation import discover, number_nodes
from strategies.flower_clients import FlowerClients
from strategies.method import Method
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
    clients = begin(strategy, grid, initial_arrays, timeout, num_rounds)
    arrays = posterior_to_arrays(strategy.state.posterior)
    result, outweighed = Result(arrays=initial_arrays), False
    first = evaluate_fn(0, arrays) if evaluate_fn and not strategy.state.server_round else None
    if first is not None:
        result.evaluate_metrics_serverapp[0] = first
    while (number := strategy.state.server_round + 1) <= num_rounds:
        started = time.perf_counter()
        replies: Iterable[Message] = ()
        if masked:  # clients are asked while their sum is made
            strategy.begin_round(number, arrays, train_config, grid)
        else:
            messages = list(strategy.configure_train(number, arrays, train_config, grid))
            replies = clients.replies(f"round {number}", messages)
        arrays, metrics = strategy.aggregate_train(number, replies)
        seconds = time.perf_counter() - started
        result.arrays, result.train_metrics_clientapp[number] = arrays, metrics
        evaluated = evaluate_fn(number, arrays) if evaluate_fn else None
        if evaluated is not None:
            result.evaluate_metrics_serverapp[number] = evaluated
        pooled = strategy.pooled
        effective, count = pooled.metrics.get("effective-clients", math.inf), len(pooled.clients)
        if count >= 3 and effective <= FEW_EFFECTIVE_CLIENTS and not outweighed:
            outweighed = True
            run.warn(
                f"round {number}: the weights of {count} clients are worth {effective:.3g} "
                f"(effective-clients, weighting {strategy.method.weighting.name}); later rounds "
                "have the number in their records alone"
            )
        measured = {**pooled.metrics, **(evaluated or {})}
        is_last = run.end_round(replace(pooled, metrics=measured, seconds=seconds))
        if is_last or (should_stop and should_stop(number, result)):
            break
    strategy.closed = close(strategy.method, strategy.state, clients, run)
    return result


def begin(
    strategy: PosteriorPooling, grid: Grid, arrays: ArrayRecord, timeout: float, num_rounds: int
) -> FlowerClients:
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
    strategy.state = run.state or ServerState.first(
        initial, nodes.size, method.begin_server_states(initial, nodes.size)
    )
    strategy.clients, strategy.last_begun = clients, strategy.state.server_round
    return clients


def check_method(
    method: Method,
    posterior: Posterior,
    configuration: Configuration | None,
    server: Server | None,
    round_retries: int,
    manifest: Manifest | None,
) -> None:
    """Refuse parts of a method that do not go with the network, the server or one another.

    Raises:
        ConfigurationError: Naming the part.
    """
    rule, weighting = method.pooling, method.weighting
    if posterior.size:
        check_pooling(rule)
    elif not rule.accepts_points:
        raise ConfigurationError(
            f"strategy '{rule.name}' pools Gaussian posteriors, and initial_arrays has only point "
            "parameters, which every strategy averages; allowed: strategies that accept points, "
            "such as naive-weighted-averaging"
        )
    elif weighting.requires_gaussian:
        raise ConfigurationError(
            f"weighting '{weighting.name}' compares posteriors, and initial_arrays has only point "
            "parameters; allowed: weightings that go by numbers, such as train-size"
        )
    check_server_side(method, server)
    check_declarations(method, configuration, server, round_retries)
    if schedule(method.closing):
        last_layer(posterior, manifest)


def check_server_side(method: Method, server: Server | None) -> None:
    """Refuse a part that needs images or a network that the server does not have."""
    for attribute, part in method.picked().items():
        if not isinstance(part, UsesServer):
            continue
        if part.needs_server and server is None:
            kind = kebab(attribute)
            raise ConfigurationError(
                f"{kind} '{part.name}' needs images and a network of the server's own, and this "
                "Strategy has neither; lend it some as run=RunSupport(server=…), or give it a "
                f"{kind} without"
            )
        part.check(server.data if server else None)


def check_pooling(rule: PoolingRule) -> None:
    """Refuse a rule that cannot pool two small posteriors; the error names it and its own."""
    previous, *clients = (
        Posterior(np.array([mean, 0.5, -mean]), np.array([variance, 0.4, 2 * variance]))
        for mean, variance in ((0.2, 1.0), (0.3, 0.5), (0.1, 0.7))
    )
    generators = [np.random.default_rng(seed) for seed in range(len(clients))]
    kept = {"previous": previous, "unrounded": previous}
    try:
        pool(rule, clients, [1.0, 2.0], generators=generators, **kept)
    except PosteriorError as error:
        raise ConfigurationError(f"{error} (tried with two posteriors)") from error


def check_declarations(
    method: Method, configuration: Configuration | None, server: Server | None, round_retries: int
) -> None:
    """Refuse parts that do not go together, as a configuration that picks them is refused.

    Args:
        configuration: What clients are sent a part of, which says what only they have; None: they
            are sent none.
    """
    clients = configuration or resolve({}, check_data=False, check_parts=False)
    of_server = [part.name for part in clients.outgoing if part.draws_on_pool]
    if of_server and not method.pool_noise:
        raise ConfigurationError(
            f"configuration has outgoing '{of_server[0]}' whose noise is the server's, and this "
            "Strategy adds none; lend it as run=RunSupport(pool_noise=…), or have clients add "
            "it (noise-at='clients')"
        )
    picked: dict[str, Any] = method.picked()
    for kind in SLOTS:
        own = tuple(part for part in method.parts if isinstance(part, kind.base))
        if own and kind.key == kind.registry.kind:
            picked[kind.attribute] = own if kind.chain else own[0]
    keys: dict[str, Any] = {"scale_floor": method.scale_floor, "round_retries": round_retries}
    if server and server.data:
        keys["server_data"] = clients.keys.server_data or HELD_BACK
        keys["server_labels"] = server.data.labels is not None
    together = replace(clients, keys=clients.keys.model_copy(update=keys), **picked)
    known = [kind for kind in SLOTS if configuration or kind.attribute in picked]
    # Without a part there is none of its kind on the server; on the clients there may be any.
    absent = [kind for kind in SLOTS if kind not in known and issubclass(kind.base, TwoSidedPart)]
    if problems := contradictions(together, known, absent):
        raise ConfigurationError("\n".join(problems))
