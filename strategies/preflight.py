"""Refusals of a Strategy before its first round."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bfl.aggregation.pooling import PoolingRule, pool
from bfl.aggregation.server import Server, UsesServer
from bfl.closing.base import schedule
from bfl.configuration import Configuration, contradictions, resolve
from bfl.configuration.component_slots import SLOTS
from bfl.data.datasets.server_data import HELD_BACK
from bfl.errors import ConfigurationError, PosteriorError
from bfl.federation.parts import TwoSidedPart
from bfl.posteriors import Manifest, Posterior
from bfl.registry import kebab
from strategies.closing import last_layer
from strategies.method import Method


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
