"""A Strategy's own ``start``: what Flower's lacks.

Replies are pooled as they come, nodes are asked again, runs go on, and clients add up for the
closing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from bfl.aggregation.pooling import check_rule
from bfl.aggregation.server import Server, UsesServer
from bfl.closing.base import last_layer, schedule
from bfl.configuration import contradictions, resolve
from bfl.configuration.component_slots import SLOTS
from bfl.data.datasets.server_data import HELD_BACK
from bfl.deployment.client_list import bound_nodes_file
from bfl.errors import ConfigurationError
from bfl.federation import wire
from bfl.federation.parts import TwoSidedPart
from bfl.posteriors import Posterior
from bfl.registry import kebab
from strategies import closing, federation
from strategies.flower_clients import FlowerClients
from strategies.method import PICKED, Method
from strategies.server_state import ServerState

if TYPE_CHECKING:
    from strategies.posterior_pooling import PosteriorPooling


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
    clients, state = begin(strategy, grid, initial_arrays, timeout, num_rounds)
    strategy.clients, strategy.state, strategy.last_begun = clients, state, state.server_round
    arrays = wire.posterior_to_arrays(strategy.state.posterior)
    result = Result(arrays=initial_arrays)
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
        measured = {**strategy.finished.metrics, **(evaluated or {})}
        is_last = run.end_round(replace(strategy.finished, metrics=measured, seconds=seconds))
        if is_last or (should_stop and should_stop(number, result)):
            break
    strategy.closed = closing.close(strategy.method, strategy.state, clients, run)
    return result


def begin(
    strategy: PosteriorPooling, grid: Grid, arrays: ArrayRecord, timeout: float, num_rounds: int
) -> tuple[FlowerClients, ServerState]:
    """Wait for the nodes and refuse what does not go together, before anybody trains.

    Args:
        timeout: Seconds without any reply after which a round goes on without the rest.
        num_rounds: The last round that is to be made.

    Returns:
        The clients, and where the federation stands.
    """
    method, run, options = strategy.method, strategy.run, strategy.client_options
    initial = wire.read_posterior(arrays, run.manifest, "initial_arrays")
    configuration = options.configuration
    check_method(strategy, initial)
    method.declared_replies(initial)  # refuses what does not fit before anybody trains
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
    wait_for_nodes = federation.discover if by_partition else federation.number_nodes
    nodes = run.federation or wait_for_nodes(grid, options.clients, options.node_timeout)
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
    return clients, run.state or method.first_state(initial, nodes.size)


def check_method(strategy: PosteriorPooling, posterior: Posterior) -> None:
    """Refuse parts of a method that do not go with the network, the server or one another.

    Raises:
        ConfigurationError: Naming the part.
    """
    method, run = strategy.method, strategy.run
    rule, weighting = method.pooling, method.weighting
    if posterior.size:
        check_rule(rule)
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
    check_server_side(method, run.server)
    check_declarations(strategy)
    if schedule(method.closing):
        last_layer(posterior, run.manifest)


def check_server_side(method: Method, server: Server | None) -> None:
    """Refuse a part that needs images or a network that the server does not have."""
    for attribute in PICKED:
        part: Any = getattr(method, attribute)
        uses_server = isinstance(part, UsesServer)
        if uses_server and part.needs_server and server is None:
            kind = kebab(attribute)
            raise ConfigurationError(
                f"{kind} '{part.name}' needs images and a network of the server's own, and this "
                "Strategy has neither; lend it some as run=RunSupport(server=…), or give it a "
                f"{kind} without"
            )
        if uses_server:
            part.check(server.data if server else None)


def check_declarations(strategy: PosteriorPooling) -> None:
    """Refuse parts that do not go together, as a configuration that picks them is refused."""
    method, server, options = strategy.method, strategy.run.server, strategy.client_options
    # Clients are sent a part of it, which says what only they have; without, they are sent none.
    configuration = options.configuration
    clients = configuration or resolve({}, check_data=False, check_parts=False)
    of_server = [part.name for part in clients.outgoing if part.draws_on_pool]
    if of_server and not method.pool_noise:
        raise ConfigurationError(
            f"configuration has outgoing '{of_server[0]}' whose noise is the server's, and this "
            "Strategy adds none; lend it as run=RunSupport(pool_noise=…), or have clients add "
            "it (noise-at='clients')"
        )
    picked: dict[str, Any] = {name: getattr(method, name) for name in PICKED}
    for kind in SLOTS:
        own = tuple(part for part in method.parts if isinstance(part, kind.base))
        if own and kind.key == kind.registry.kind:
            picked[kind.attribute] = own if kind.chain else own[0]
    keys: dict[str, Any] = {
        "scale_floor": method.scale_floor,
        "round_retries": options.round_retries,
    }
    if server and server.data:
        keys["server_data"] = clients.keys.server_data or HELD_BACK
        keys["server_labels"] = server.data.labels is not None
    together = replace(clients, keys=clients.keys.model_copy(update=keys), **picked)
    known = [kind for kind in SLOTS if configuration or kind.attribute in picked]
    # Without a part there is none of its kind on the server; on the clients there may be any.
    absent = [kind for kind in SLOTS if kind not in known and issubclass(kind.base, TwoSidedPart)]
    if problems := contradictions(together, known, absent):
        raise ConfigurationError("\n".join(problems))
