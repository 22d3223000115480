"""Every registered schedule, the papers' formulas, and runs that are given more rounds."""

import math
from itertools import pairwise

import pytest

from bfl.configuration import resolve
from bfl.errors import ConfigurationError
from bfl.learning.schedules import schedules


def rates(rounds, **settings):
    schedule = schedules.create("step", {k.replace("_", "-"): v for k, v in settings.items()})
    return [schedule.learning_rate(0.01, number, rounds) for number in range(1, rounds + 1)]


def test_rates_are_those_of_fedbe():
    expected = [0.01 if r < 12 else 0.001 if r < 24 else 0.0001 for r in range(40)]
    assert rates(40) == pytest.approx(expected, rel=1e-12)


def test_a_share_of_the_rounds_is_the_number_that_it_comes_to():
    assert rates(40) == rates(40, lr_milestones="12,24")
    # 0.1 * 30 is a little more than 3 for a computer.
    assert rates(30, lr_milestones="0.1,0.6") == rates(30, lr_milestones="3,18")
    # A share that is no whole number of rounds is over with the next one.
    assert rates(10, lr_milestones="0.25,0.6") == rates(10, lr_milestones="3,6")


def test_rates_of_fedbes_code():
    """Round r from 0: 0.5 in the first, and of R rounds 0.2 where r > 0.3 R, and so on."""
    for rounds, milestones in ((40, "0,1,13,25,37"), (20, "0,1,7,13,19")):
        factors = [1.0] * rounds
        for share, factor in ((0.3, 0.2), (0.6, 0.1), (0.9, 0.01)):
            factors = [factor if r > share * rounds else f for r, f in enumerate(factors)]
        factors[0] = 0.5
        found = rates(rounds, lr_milestones=milestones, lr_factors="0.5,1,0.2,0.1,0.01")
        assert found == pytest.approx([0.01 * factor for factor in factors], rel=1e-12)


def test_the_latest_milestone_counts_in_whatever_order_they_stand():
    assert rates(10, lr_milestones="0.6,3", lr_factors="0.01,0.1") == rates(10, lr_milestones="3,6")


@pytest.mark.parametrize("key", ["lr-milestones", "lr-factors"])
@pytest.mark.parametrize("text", ["0.3;0.6", "-1,2", "0.1", "a,inf"])
def test_refused_settings(key, text):
    with pytest.raises(ConfigurationError, match=key if text != "0.1" else "lr-factors"):
        resolve({"schedule": "step", key: text})
    with pytest.raises(ConfigurationError, match="lr-milestones"):
        resolve({"schedule": "step", "lr-milestones": "1.5,3"})
    with pytest.raises(ConfigurationError, match="lr-factors"):
        resolve({"schedule": "step", "lr-factors": "0.1,0"})


@pytest.mark.parametrize("name", schedules.names())
def test_rates_are_positive_do_not_grow_and_begin_with_the_initial_one(name: str) -> None:
    schedule = schedules.create(name)
    rates = [schedule.learning_rate(0.001, number, 400) for number in range(1, 401)]
    assert rates[0] == 0.001
    assert all(0 < later <= earlier for earlier, later in pairwise(rates))


def test_exponential_decay_begins_after_the_silent_rounds() -> None:
    schedule = schedules.create("exponential", {"lr-decay": 0.1, "lr-silent-rounds": 5})
    assert schedule.learning_rate(0.2, 5, 20) == 0.2
    assert schedule.learning_rate(0.2, 8, 20) == pytest.approx(0.2 * math.exp(-0.3))


def test_a_cosine_is_half_way_down_after_half_of_the_rounds() -> None:
    rates = [schedules.create("cosine").learning_rate(0.2, number, 9) for number in (1, 4, 7, 9)]
    assert rates == pytest.approx([0.2, 0.15, 0.05, 0.1 * (1 - math.cos(math.pi / 9))])
