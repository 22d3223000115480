"""The Strategy subclasses that grep finds, held to the registry."""

import inspect

import pytest

import strategies
from bfl.pooling import PoolingRule, pooling_rules
from strategies import rules
from strategies.posterior_pooling import PosteriorPooling

OWN = [rule for rule in pooling_rules.classes() if rule.__module__.startswith("bfl.pooling.")]


@pytest.mark.parametrize("rule", OWN, ids=lambda rule: rule.name)
def test_every_rule_of_this_package_has_a_written_class(rule: type[PoolingRule]) -> None:
    written = getattr(rules, rule.__name__)
    assert written is strategies.strategy_class(rule) is getattr(strategies, rule.__name__)
    assert f"class {rule.__name__}(PosteriorPooling):" in inspect.getsource(written)
    assert isinstance(written().method.pooling, rule)


def test_no_written_class_is_without_its_rule() -> None:
    classes = [cls for cls in vars(rules).values() if inspect.isclass(cls)]
    written = {
        cls.rule_class
        for cls in classes
        if issubclass(cls, PosteriorPooling) and cls is not PosteriorPooling
    }
    assert written == set(OWN)


def test_a_rule_from_elsewhere_has_a_class_as_well() -> None:
    class Elsewhere(pooling_rules.get("conflation")):  # type: ignore[misc]
        """Of the user's own."""

    made = strategies.strategy_class(Elsewhere)
    assert issubclass(made, PosteriorPooling)
    assert made.rule_class is Elsewhere
    assert made.__name__ == "Elsewhere"
