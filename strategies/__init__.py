"""The server side of Flower: the ServerApp and one Strategy subclass per pooling rule.

``strategies.Conflation``, ``strategies.LinearPool``, ... pool with the rule of that name, such as
``ConflationRule``, and take its settings and the other parts as keyword arguments. A new rule has
its Strategy without an edit here:

    from strategies import LinearPool

    LinearPool(weighting="distance").start(grid, initial_arrays)

A ServerApp of your own needs nothing else. Its clients may use any framework: docs/wire-format.md
specifies the messages, with both apps in full. bfl's clients take a ``configuration`` and a
``partition`` of ``ClientOptions``: the examples of each, or ``[None] * K`` for their nodes' own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, make_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from bfl.aggregation.pooling import PoolingRule, pooling_rules
from bfl.federation.wire import Positions
from strategies.method import ClientOptions, GivenParts, Method, RunSupport
from strategies.posterior_pooling import PosteriorPooling

if TYPE_CHECKING:
    from bfl.configuration import Configuration

__all__ = ["ClientOptions", "PosteriorPooling", "RunSupport", "strategy_class", "strategy_classes"]


@cache
def strategy_class(rule: type[PoolingRule]) -> type[PosteriorPooling]:
    """Return the Strategy subclass that pools with a rule: of ConflationRule it is Conflation."""
    return make_dataclass(
        rule.__name__.removesuffix("Rule"),
        [
            (name, setting.annotation or object, setting.default)
            for name, setting in rule.model_fields.items()
        ],
        bases=(PosteriorPooling,),
        namespace={"rule_class": rule, "__doc__": rule.__doc__, "__module__": __name__},
        kw_only=True,
        eq=False,
        repr=False,
    )


def strategy_classes() -> dict[str, type[PosteriorPooling]]:
    """Return the Strategy subclasses of all registered rules, by class name."""
    return {each.__name__: each for each in map(strategy_class, pooling_rules.classes())}


def make_strategy(
    configuration: Configuration,
    num_classes: int,
    partition: Sequence[Positions | None],
    run: RunSupport | None = None,
) -> PosteriorPooling:
    """Return the configured Strategy: the subclass of its rule, with the other parts.

    Args:
        partition: The examples of each client; None for nodes with data of their own.
        run: What the run lends it besides; it gets what else the method has.
    """
    keys, method = configuration.keys, Method.of(configuration)
    run = run or RunSupport()
    run.predictive, run.closing = method.predictive, method.closing
    given: dict[str, Any] = {
        part.name: getattr(method, part.name, None) for part in fields(GivenParts)
    }
    return strategy_class(type(method.pooling))(
        **{**given, "rule": method.pooling},
        seed=keys.seed,
        client_options=ClientOptions(
            clients=keys.clients,
            min_clients=keys.min_clients,
            round_retries=keys.round_retries,
            node_timeout=keys.node_timeout,
            max_examples=keys.max_examples,
            configuration=configuration,
            num_classes=num_classes,
            partition=partition,
        ),
        run=run,
    )


def __getattr__(name: str) -> type[PosteriorPooling]:
    try:
        return strategy_classes()[name]
    except KeyError:
        raise AttributeError(f"module 'strategies' has no attribute '{name}'") from None


def __dir__() -> list[str]:
    return [*__all__, *strategy_classes()]
