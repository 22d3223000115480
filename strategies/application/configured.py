"""The Strategy that a configuration describes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from bfl.configuration import Configuration
from bfl.federation.wire import Positions
from strategies import strategy_class
from strategies.method import Method
from strategies.posterior_pooling import PosteriorPooling
from strategies.privacy import PoolNoise


def make_strategy(
    configuration: Configuration,
    num_classes: int,
    partition: Sequence[Positions | None],
    *,
    pool_noise: PoolNoise | None = None,
    **more: Any,
) -> PosteriorPooling:
    """Return the configured Strategy: the subclass of its rule, with the other parts.

    Args:
        configuration: The run's configuration.
        num_classes: The number of classes.
        partition: The examples of each client; None for nodes with data of their own.
        pool_noise: What is done to the pool where the server adds noise; by default nothing.
        more: Other arguments of the Strategy.
    """
    keys, method = configuration.keys, Method.of(configuration)
    parts = {part.name: getattr(method, part.name) for part in fields(method)}
    return strategy_class(type(method.pooling))(
        rule=parts.pop("pooling"),
        **{**parts, "pool_noise": pool_noise},
        configuration=configuration,
        num_classes=num_classes,
        partition=partition,
        clients=keys.clients,
        max_examples=keys.max_examples,
        seed=keys.seed,
        node_timeout=keys.node_timeout,
        min_clients=keys.min_clients,
        round_retries=keys.round_retries,
        **more,
    )
