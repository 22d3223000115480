"""The server side of Flower: the ServerApp and one Strategy subclass per pooling rule.

``strategies.Conflation``, ``strategies.LinearPool``, ... are in ``strategies/rules.py``. Each pools
with its rule, and takes the rule's settings and the other parts as keyword arguments. A new rule
has its Strategy without an edit here:

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
from strategies import rules
from strategies.posterior_pooling import PosteriorPooling
from strategies.run_support import ClientOptions, RunSupport

__all__ = ["ClientOptions", "PosteriorPooling", "RunSupport", "strategy_class", "strategy_classes"]


@cache
def strategy_class(rule: type[PoolingRule]) -> type[PosteriorPooling]:
    """Return the Strategy subclass that pools with a rule: of ConflationRule it is Conflation."""
    name = rule.__name__.removesuffix("Rule")
    own: type[PosteriorPooling] | None = getattr(rules, name, None)
    if own is not None and own.rule_class is rule:
        return own
    settings = [
        (field, setting.annotation or object, setting.default)
        for field, setting in rule.model_fields.items()
    ]
    return make_dataclass(
        name,
        settings,
        bases=(PosteriorPooling,),
        namespace={"rule_class": rule, "__doc__": rule.__doc__, "__module__": __name__},
        kw_only=True,
        eq=False,
        repr=False,
    )


def strategy_classes() -> dict[str, type[PosteriorPooling]]:
    """Return the Strategy subclasses of all registered rules, by class name."""
    found = map(strategy_class, pooling_rules.classes())
    return {strategy.__name__: strategy for strategy in found}


def __getattr__(name: str) -> type[PosteriorPooling]:
    own = getattr(rules, name, None)
    if isinstance(own, type) and issubclass(own, PosteriorPooling):
        return own  # without a look for the rules of plugins
    try:
        return strategy_classes()[name]
    except KeyError:
        raise AttributeError(f"module 'strategies' has no attribute '{name}'") from None


def __dir__() -> list[str]:
    return [*__all__, *strategy_classes()]
