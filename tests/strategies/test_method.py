"""The method's parts are declared once: what is picked, and what a Strategy is made with."""

from __future__ import annotations

import inspect
from dataclasses import fields

from bfl.configuration import resolve
from bfl.configuration.kinds import KINDS
from strategies.configured import make_strategy
from strategies.method import Method
from strategies.posterior_pooling import PosteriorPooling

OTHERS = {
    "strategy": "nwa",
    "weighting": "equal",
    "defence": "winsorization",
    "server-optimizer": "adam",
    "broadcast": "mean",
    "refinement": "distillation",
    "sampler": "dirichlet",
    "predictive": "ensemble",
    "sampling": "cyclic",
    "server-data": "held-back",
    "scale-floor": 0.25,
}


def test_what_is_picked_is_every_field_that_is_a_kind_of_part() -> None:
    configuration = resolve(OTHERS, check_parts=False)
    kinds = {kind.attribute for kind in KINDS}
    picked = Method.of(configuration).picked()
    assert picked.keys() == {declared.name for declared in fields(Method)} & kinds
    assert len(picked) >= 10
    assert picked == {name: getattr(configuration, name) for name in picked}


def test_a_strategy_takes_every_part_of_a_method() -> None:
    """As configured, each: one that a Strategy does not know would have its default there."""
    configuration = resolve(OTHERS, check_parts=False)
    method = Method.of(configuration)
    assert make_strategy(configuration, 10, []).method == method
    taken = inspect.signature(PosteriorPooling).parameters.keys()
    assert method.picked().keys() - {"pooling"} <= taken
