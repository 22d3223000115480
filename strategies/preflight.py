"""Refusals of a Strategy before its first round."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bfl.aggregation.pooling import PoolingRule
from bfl.aggregation.server import Server, UsesServer
from bfl.aggregation.server_optimizers import ServerOptimizer
from bfl.aggregation.weightings import Weighting
from bfl.configuration import Configuration, contradictions, resolve
from bfl.configuration.component_slots import SLOTS, base_of
from bfl.data.datasets.server_data import HELD_BACK
from bfl.engine.resources import available_memory
from bfl.errors import ConfigurationError
from bfl.federation.parts import Part
from bfl.federation.secure_aggregation.accuracy import ValueRange, check_accuracy
from bfl.federation.secure_aggregation.on_the_wire import is_share
from bfl.posteriors import Manifest, Posterior
from bfl.posteriors.posterior import VECTORS
from bfl.registry import kebab
from bfl.texts import from_json
from strategies.closing import check_closing
from strategies.method import Method
from strategies.pool_updates import foreseen_weights

WORKING_VECTORS = 8
"""Vectors over all parameters that the server holds besides the clients' models."""


def text_for_clients(given: Configuration | str, *, paths: bool = True) -> str:
    """Return what clients are sent of a configuration; a text of your own as it is.

    Args:
        given: The configuration.
        paths: Whether the clients look for the run's data where the server has them.
    """
    return given if isinstance(given, str) else json.dumps(given.for_clients(paths=paths))


def known_configuration(given: Configuration | str) -> Configuration | None:
    """Return what is known of the clients' configuration; None: they are sent none.

    Raises:
        ConfigurationError: With a line for each refused value of a text of your own.
    """
    if not isinstance(given, str):
        return given
    values = from_json(given)
    return resolve(values, check_data=False, check_parts=False) if values else None


def check_method(
    method: Method,
    posterior: Posterior,
    configuration: Configuration | None,
    server: Server | None,
    round_retries: int,
    manifest: Manifest | None,
) -> None:
    """Raise if the parts of a method do not go with the network, the server or one another.

    Raises:
        ConfigurationError: Naming the part.
    """
    check_parts_go_with(posterior, method.pooling, method.weighting)
    check_server_side(method, server)
    check_declarations(method, configuration, server, round_retries)
    check_closing(method.closing, posterior, manifest)


def check_server_side(method: Method, server: Server | None) -> None:
    """Raise if a part needs what the server does not have.

    Raises:
        ConfigurationError: There is no network or no data, or the data do not serve.
    """
    for attribute, part in method.picked().items():
        if not isinstance(part, UsesServer):
            continue
        if part.needs_server and server is None:
            kind = kebab(attribute)
            raise ConfigurationError(
                f"{kind} '{part.name}' needs images and a network of the server's own, and this "
                "Strategy has neither; give it as server (bfl.experiments.run.server), or a "
                f"{kind} without"
            )
        part.check(server.data if server else None)


def check_exchange(
    method: Method,
    configuration: Configuration | None,
    posterior: Posterior,
    known: Mapping[int, int],
    asked: Mapping[int, Sequence[int]],
    needed: Callable[[int], int],
) -> None:
    """Raise if the server is to learn sums alone, and clients send more or too little is known.

    Args:
        method: The parts.
        configuration: What clients are sent a part of; None: they are sent none.
        posterior: The posterior that the first round begins with.
        known: How many examples clients hold, by partition id, as far as the server knows.
        asked: Who is asked in each round of the run, by its number.
        needed: Gives how many a round needs of so many.

    Raises:
        ConfigurationError: Naming what.
    """
    secure_sums = method.exchange.secure_sums
    if not secure_sums:
        return
    said = f"exchange '{method.exchange.name}': the server learns sums alone, and "
    if beside := [array.name for array in method.declared(posterior)]:
        raise ConfigurationError(
            f"{said}clients are to send {', '.join(beside)} besides their posteriors; allowed: "
            "exchange='direct'"
        )
    for count in {len(clients) for clients in asked.values()}:
        method.exchange.check_asked(count)
    if unknown := [str(c) for c in sorted(set().union(*asked.values()) - known.keys())]:
        raise ConfigurationError(
            f"{said}the number of examples of partitions {', '.join(unknown)} is not known before "
            "the first round; allowed: nodes that declare own-examples, examples that the server "
            "assigns, or exchange='direct'"
        )
    sizes = {client: known[client] for client in sorted(set().union(*asked.values()))}
    _check_clients_know_weights(method.weighting, configuration, sizes, said)
    _check_accuracy_of_rounds(method, secure_sums.value_range, posterior, known, asked, needed)


def _check_clients_know_weights(
    weighting: Weighting,
    configuration: Configuration | None,
    sizes: Mapping[int, int],
    said: str,
) -> None:
    """Raise if clients would find other weights than the server gives them, and send nothing.

    Args:
        weighting: The server's.
        configuration: What clients are sent a part of; None: they are sent none.
        sizes: How many examples each client holds that is ever asked, by partition id.
        said: What the message begins with.

    Raises:
        ConfigurationError: Clients are sent another weighting; or the scale of a client's γ depends
            on who is weighed with it.
    """
    if configuration and _described(configuration.weighting) != _described(weighting):
        raise ConfigurationError(
            f"{said}each client checks its weight, this Strategy's weighting is "
            f"{_described(weighting)}, and that of the configuration that clients are sent is "
            f"{_described(configuration.weighting)}; allowed: the same in both"
        )
    gammas = {client: weighting.gamma_of_count(count) for client, count in sizes.items()}
    total = math.fsum(gammas.values())
    for client, weight in foreseen_weights(weighting, sizes).items():
        if not is_share(weight, gammas[client], total):
            raise ConfigurationError(
                f"{said}each client checks its weight by its own number of examples, and weighting "
                f"'{weighting.name}' gives partition {client} ({sizes[client]} examples) another "
                "one besides the others than by itself; allowed: a weighting whose numbers for a "
                "client do not depend on the others, such as train-size, or exchange='direct'"
            )


def _described(weighting: Weighting) -> str:
    settings = weighting.model_dump(by_alias=True).items()
    return ", ".join([f"'{weighting.name}'", *(f"{key}={value!r}" for key, value in settings)])


def _check_accuracy_of_rounds(
    method: Method,
    allowed: ValueRange,
    posterior: Posterior,
    known: Mapping[int, int],
    asked: Mapping[int, Sequence[int]],
    needed: Callable[[int], int],
) -> None:
    """Raise if sums would be too coarse in a round of which that can be known before the first.

    Weights are another round's where clients are sampled, and so is what rounding does to them.

    Raises:
        ConfigurationError: Naming the round, if it is not the first.
    """
    found_fine: set[tuple[float, ...]] = set()
    for number, clients in sorted(asked.items()):
        weights = foreseen_weights(method.weighting, {client: known[client] for client in clients})
        shares = tuple(sorted(weights.values()))
        if shares in found_fine:
            continue
        try:
            check_accuracy(method.pooling, allowed, posterior, shares, needed(len(clients)))
        except ConfigurationError as error:
            where = f"round {number} would ask clients {', '.join(map(str, clients))}: "
            raise ConfigurationError(f"{where if number > 1 else ''}{error}") from error
        found_fine.add(shares)
        if method.pooling.uses_previous:  # the grid of those that follow is not known yet
            return


def check_declarations(
    method: Method, configuration: Configuration | None, server: Server | None, round_retries: int
) -> None:
    """Raise if parts do not go together, as a configuration that picks them is refused.

    Of what only clients have, such as the optimizer, is known what the configuration for them says;
    nothing of clients that are sent none.

    Args:
        method: The server's parts.
        configuration: What clients are sent a part of; None: they are sent none.
        server: The server's own data and network.
        round_retries: How often clients that fail are asked again in a round.

    Raises:
        ConfigurationError: With a line for each contradiction.
    """
    clients = configuration or resolve({}, check_data=False, check_parts=False)
    picked: dict[str, Any] = method.picked()
    for kind in SLOTS:
        mine = tuple(part for part in method.parts if isinstance(part, base_of(kind)))
        if mine and kind.key == kind.registry.kind:
            picked[kind.attribute] = mine if kind.chain else mine[0]
    data = server.data if server else None
    of_server = [part.name for part in clients.outgoing if part.draws_on_pool]
    if of_server and not method.pool_noise:
        raise ConfigurationError(
            f"configuration has outgoing '{of_server[0]}' whose noise is the server's, and this "
            "Strategy adds none; give it as pool_noise (strategies.privacy), or have clients add "
            "it (noise-at='clients')"
        )
    keys: dict[str, Any] = {"scale_floor": method.scale_floor, "round_retries": round_retries}
    if data:
        keys["server_data"] = clients.keys.server_data or HELD_BACK
        keys["server_labels"] = data.labels is not None
    together = replace(clients, keys=clients.keys.model_copy(update=keys), **picked)
    known = [kind for kind in SLOTS if configuration or kind.attribute in picked]
    # Without a part there is none of its kind on the server; on the clients there may be any.
    absent = [kind for kind in SLOTS if kind not in known and issubclass(base_of(kind), Part)]
    problems = contradictions(together, known, absent)
    if problems:
        raise ConfigurationError("\n".join(problems))


def check_memory(
    method: Method,
    posterior: Posterior,
    asked: Mapping[int, Sequence[int]],
    *,
    kept: bool = False,
) -> None:
    """Raise if the models of all clients of a round are needed at once and do not fit in memory.

    Args:
        method: The server's parts.
        posterior: What the first round begins with.
        asked: The clients that are asked, by round; the most of a round count.
        kept: Whether a round is kept on the disk between pooling and refining.

    Raises:
        ConfigurationError: Saying how much is needed and how much there is.
    """
    if not method.needs_models:
        return
    parameters = posterior.size + posterior.point.size
    model = sum(getattr(posterior, name).nbytes for name in VECTORS)
    # A predictive keeps all models in arrays of their own, besides those that were sent and those
    # that it has from the round before. A round that is kept has them in arrays and in the file
    # that is put together, which has those that the predictive has from the round before as well.
    predicts = int(method.predictive.needs_models)
    saved = kept and method.refinement.keeps_pooled_round
    copies = 3 + 2 * predicts if saved else 1 + 2 * predicts
    # What pooling, sampling and averaging have in float64 at a time.
    working = WORKING_VECTORS * 8 * parameters
    most = max(map(len, asked.values()))
    needed, free = copies * most * model + working, available_memory()
    if needed > free:
        parts = [p.name for p in (method.refinement, method.predictive) if p.needs_models]
        raise ConfigurationError(
            f"{' and '.join(parts)} need the models of all {most} clients of a round at once, "
            f"{needed / 1e9:.1f} GB with {parameters:,} parameters, and there are "
            f"{free / 1e9:.1f} GB; allowed: fewer clients a round (fraction-train), a smaller "
            "model, or neither"
        )


def check_parts_go_with(posterior: Posterior, rule: PoolingRule, weighting: Weighting) -> None:
    """Raise if a network has no Gaussian parameters and a part says nothing about points.

    Raises:
        ConfigurationError: Naming the part.
    """
    if posterior.size:
        return
    if not rule.accepts_points:
        raise ConfigurationError(
            f"strategy '{rule.name}' pools Gaussian posteriors, and initial_arrays has only point "
            "parameters, which every strategy averages; allowed: strategies that accept points, "
            "such as naive-weighted-averaging"
        )
    if weighting.requires_gaussian:
        raise ConfigurationError(
            f"weighting '{weighting.name}' compares posteriors, and initial_arrays has only point "
            "parameters; allowed: weightings that go by numbers, such as train-size"
        )


def unknown_moving_statistics(
    optimizer: ServerOptimizer, posterior: Posterior, manifest: Manifest | None
) -> list[str]:
    """Return what is to be said before the first round of steps that take statistics for weights.

    Without a manifest nobody knows which point parameters training moves by their gradient.
    """
    points = posterior.point.size
    if optimizer.idle or manifest or not points:
        return []
    return [
        f"server-optimizer '{optimizer.name}' moves all {points} point parameters, and could lead "
        "a moving variance of batch normalisation below 0: this Strategy has no manifest, which "
        "would say what are moving statistics; give it as manifest (bfl.posteriors.Manifest) if "
        "the network has some"
    ]
