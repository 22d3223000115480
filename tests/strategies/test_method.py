"""Methods and the Strategy subclasses of rules, held to the registries."""

import inspect
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from small_federation import arguments

import strategies
from bfl.aggregation.pooling import check_rule, pooling_rules
from bfl.aggregation.pooling.base import Decoded
from bfl.configuration import resolve
from bfl.configuration.component_slots import SLOTS
from bfl.errors import ConfigurationError
from strategies import Conflation, NaiveWeightedAveraging, make_strategy, strategy_classes
from strategies.method import PICKED, Method
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
    "sampling": "single",
    "server-data": "held-back",
    "scale-floor": 0.25,
}

ANY = {"weighting": "equal", "defence": "none", "sampling": "random", "server_optimizer": "none"}


def test_what_is_picked_is_every_field_that_is_a_kind_of_part() -> None:
    configuration = resolve(OTHERS, check_parts=False)
    kinds = {kind.attribute for kind in SLOTS if not kind.chain}
    method = Method.of(configuration)
    assert PICKED.keys() == {declared.name for declared in fields(Method)} & kinds
    assert len(PICKED) >= 10
    assert all(getattr(method, name) == getattr(configuration, name) for name in PICKED)


def test_a_strategy_takes_every_part_of_a_method() -> None:
    """As configured, or each by itself: one that a Strategy does not know would have its default
    there.
    """
    configuration = resolve(OTHERS, check_parts=False)
    method = Method.of(configuration)
    assert make_strategy(configuration, 10, []).method == method
    others = {name: part for name, part in vars(method).items() if name != "pooling"}
    by_itself = PosteriorPooling(**arguments(rule=method.pooling, **others))
    assert by_itself.method == NaiveWeightedAveraging(**arguments(**others)).method == method


def test_a_strategy_s_arguments_are_named_and_typed() -> None:
    for strategy in strategy_classes().values():
        arguments = inspect.signature(strategy).parameters
        assert {"weighting", "defence", "server_optimizer"} <= arguments.keys()
        assert all(
            each.kind is each.KEYWORD_ONLY and each.annotation for each in arguments.values()
        )
        rule = strategy.rule_class
        assert rule is not None
        for name, setting in rule.model_fields.items():
            assert arguments[name].default == setting.default, f"{strategy.__name__}: {name}"
        assert "=" in (strategy.__doc__ or ""), f"{strategy.__name__} has no formula"


def test_a_strategy_takes_no_other_rule_and_no_unknown_part() -> None:
    with pytest.raises(TypeError, match="Conflation is given rule NaiveWeightedAveragingRule"):
        Conflation(rule=Method.of_parts(**ANY, pooling="nwa").pooling)
    with pytest.raises(TypeError, match="needs a rule"):
        PosteriorPooling(weighting="equal")
    with pytest.raises(ConfigurationError, match="did you mean 'equal'"):
        Conflation(weighting="eqal")
    for given in ({"parts": "scaffold"}, {"closing": "bayesian-head"}):
        with pytest.raises(ConfigurationError, match="allowed: a sequence of parts"):
            Conflation(**arguments(**given))


def test_a_rule_from_elsewhere_has_its_strategy() -> None:
    class Elsewhere(pooling_rules.get("conflation")):  # type: ignore[misc]
        """Of the user's own."""

    made = strategies.strategy_class(Elsewhere)
    assert issubclass(made, PosteriorPooling)
    assert (made.__name__, made.rule_class) == ("Elsewhere", Elsewhere)


@pytest.mark.parametrize(
    ("broken", "word"),
    [
        ({"encode": lambda *_: (1.0,)}, "1 statistics"),
        ({"encode": lambda _, mean, *__: mean}, "ndarray"),
        ({"decode": lambda *_: None}, "NoneType"),
        ({"decode": lambda *_: Decoded(np.zeros(2), np.ones(2))}, "shape"),
    ],
)
def test_a_rule_that_cannot_pool_is_refused(broken: dict[str, Any], word: str) -> None:
    rule: Any = type("Broken", (pooling_rules.get("nwa"),), broken)
    with pytest.raises(ConfigurationError, match=f"naive-weighted-averaging.*{word}"):
        check_rule(rule())
