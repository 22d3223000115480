"""The Strategy subclasses that grep finds, held to the registry."""

import inspect
from typing import Any

import numpy as np
import pytest

import strategies
from bfl.aggregation import pooling
from bfl.aggregation.pooling import pooling_rules
from bfl.aggregation.pooling.base import Decoded
from bfl.errors import ConfigurationError
from strategies import rules
from strategies.posterior_pooling import PosteriorPooling
from strategies.preflight import check_pooling

OWN = pooling.__name__
WRITTEN = [
    cls
    for cls in vars(rules).values()
    if inspect.isclass(cls) and issubclass(cls, PosteriorPooling) and cls is not PosteriorPooling
]


@pytest.mark.parametrize("written", WRITTEN, ids=lambda cls: cls.__name__)
def test_a_written_class_is_that_of_a_registered_rule(written: type[PosteriorPooling]) -> None:
    rule = written.rule_class
    assert rule in pooling_rules.classes()
    assert f"{written.__name__}Rule" == rule.__name__
    assert strategies.strategy_class(rule) is getattr(strategies, written.__name__) is written
    assert f"class {written.__name__}(PosteriorPooling):" in inspect.getsource(written)
    assert isinstance(written().method.pooling, rule)


@pytest.mark.of_bfls_own
def test_every_rule_of_bfls_own_has_a_written_class() -> None:
    """Rules from elsewhere get theirs when they are asked for."""
    own = {rule for rule in pooling_rules.classes() if rule.__module__.startswith(f"{OWN}.")}
    written = {cls.rule_class for cls in WRITTEN}
    assert written == own, "strategies/rules.py has a class for each rule of bfl's own"


def test_a_rule_from_elsewhere_has_a_class_as_well() -> None:
    class Elsewhere(pooling_rules.get("conflation")):  # type: ignore[misc]
        """Of the user's own."""

    made = strategies.strategy_class(Elsewhere)
    assert issubclass(made, PosteriorPooling)
    assert made.rule_class is Elsewhere
    assert made.__name__ == "Elsewhere"


def test_every_rule_pools_the_two_posteriors_of_the_trial() -> None:
    for rule in pooling_rules.classes():
        check_pooling(rule())


@pytest.mark.parametrize(
    ("broken", "word"),
    [
        ({"encode": lambda *_: (1.0,)}, "1 statistics"),
        ({"encode": lambda _, mean, *__: mean}, "ndarray"),
        ({"encode": lambda _, mean, *__: mean.nothing}, r"AttributeError.*test_rules\.py, line"),
        ({"decode": lambda *_: None}, "NoneType"),
        ({"decode": lambda *_: 1 / 0}, "ZeroDivisionError"),
        ({"decode": lambda *_: Decoded(np.zeros(2), np.ones(2))}, "shape"),
    ],
)
def test_a_rule_that_cannot_pool_is_refused(broken: dict[str, Any], word: str) -> None:
    rule: Any = type("Broken", (pooling_rules.get("nwa"),), broken)
    with pytest.raises(ConfigurationError, match=f"naive-weighted-averaging.*{word}"):
        check_pooling(rule())
