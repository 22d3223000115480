"""Every registered schedule, and the formula of Fischer et al.'s."""

import math
from itertools import pairwise

import pytest

from bfl.learning.schedules import schedules


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


def test_a_constant_rate_is_constant() -> None:
    assert schedules.create("constant").learning_rate(0.01, 400, 400) == 0.01
