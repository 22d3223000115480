"""The tables ``[[orders]]`` of a study's file: read, and refused where no two lines are meant."""

from __future__ import annotations

from itertools import product
from typing import Annotated

import pydantic
from pydantic import Field

from bfl.errors import unknown_name
from bfl.experiments.studies.study import Order, Study
from bfl.registry import STRICT

_OneOrMore = str | Annotated[list[str], Field(min_length=1)]


class OrderTable(pydantic.BaseModel):
    """A table ``[[orders]]``; a list in place of a name stands for each of its names in turn."""

    model_config = STRICT

    metric: _OneOrMore
    better: dict[str, _OneOrMore] = Field(min_length=1)
    worse: dict[str, _OneOrMore] = Field(min_length=1)

    def orders(self) -> list[Order]:
        """Return an order for each metric, each better and each worse line."""
        return [
            Order(metric, better, worse)
            for metric in _each(self.metric)
            for better in _lines(self.better)
            for worse in _lines(self.worse)
        ]


def order_problems(study: Study) -> list[str]:
    """Return what is wrong with the orders that a study expects, a line each.

    Args:
        study: The study; its orders are compared with its columns and its lines.
    """
    shown = {column.metric: column.higher_is_better for column in study.columns}
    ranked = ", ".join(m for m, side in shown.items() if side is not None) or "none of the table's"
    problems = [
        f"orders: metric is {order.metric!r}, a column without a better side; allowed: {ranked}"
        if order.metric in shown
        else f"orders: {unknown_name('column', order.metric, list(shown))}"
        for order in study.orders
        if shown.get(order.metric) is None
    ]
    return problems + [
        f"orders: no two lines of the table are {order.better} and {order.worse}"
        for order in study.orders
        if not order.pairs(study.cells())
    ]


def _each(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given


def _lines(labels: dict[str, str | list[str]]) -> list[dict[str, str]]:
    return [
        dict(zip(labels, chosen, strict=True)) for chosen in product(*map(_each, labels.values()))
    ]
