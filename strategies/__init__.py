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

from dataclasses import make_dataclass
from functools import cache

from bfl.aggregation.pooling import PoolingRule, pooling_rules
from strategies.method import ClientOptions, RunSupport
from strategies.posterior_pooling import PosteriorPooling

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


def __getattr__(name: str) -> type[PosteriorPooling]:
    try:
        return strategy_classes()[name]
    except KeyError:
        raise AttributeError(f"module 'strategies' has no attribute '{name}'") from None


def __dir__() -> list[str]:
    return [*__all__, *strategy_classes()]
