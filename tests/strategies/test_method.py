"""The method's parts are declared once: what is picked, and what a Strategy is made with."""

from __future__ import annotations

import inspect
from dataclasses import fields

import pytest

from bfl.configuration import resolve
from bfl.configuration.kinds import KINDS
from bfl.errors import ConfigurationError
from strategies import Conflation, NaiveWeightedAveraging
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
    kinds = {kind.attribute for kind in KINDS if not kind.chain}
    picked = Method.of(configuration).picked()
    assert picked.keys() == {declared.name for declared in fields(Method)} & kinds
    assert len(picked) >= 10
    assert picked == {name: getattr(configuration, name) for name in picked}


def test_a_strategy_takes_every_part_of_a_method() -> None:
    """As configured, or each by itself: one that a Strategy does not know would have its default
    there.
    """
    configuration = resolve(OTHERS, check_parts=False)
    method = Method.of(configuration)
    assert make_strategy(configuration, 10, []).method == method
    of_a_rule = method.pooling.model_dump()
    others = {name: part for name, part in vars(method).items() if name != "pooling"}
    taken = inspect.signature(Method.of_parts).parameters.keys()
    assert taken - {"rule_class", "rule", "rule_settings"} == others.keys()
    by_itself = PosteriorPooling(rule=method.pooling, **others)
    assert by_itself.method == NaiveWeightedAveraging(**others, **of_a_rule).method == method


def test_a_strategy_takes_a_method_or_its_parts() -> None:
    method = Method.of_parts(rule="nwa", weighting="equal")
    assert PosteriorPooling(method=method).method is method
    assert NaiveWeightedAveraging(method=method).method is method
    with pytest.raises(TypeError, match="a method is given, and beside it weighting"):
        PosteriorPooling(method=method, weighting="equal")
    with pytest.raises(TypeError, match="Conflation is given a method that pools by 'naive-w"):
        Conflation(method=method)
    with pytest.raises(TypeError, match="needs a rule"):
        PosteriorPooling(weighting="equal")
    with pytest.raises(ConfigurationError, match="did you mean 'equal'"):
        Conflation(weighting="eqal")
