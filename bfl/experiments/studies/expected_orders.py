"""The tables ``[[orders]]`` of a study's file: read, and refused where no two lines are meant."""

from __future__ import annotations

from itertools import product
from typing import Annotated, Self

import pydantic
from pydantic import Field

from bfl.errors import unknown_name
from bfl.experiments.studies.study import Order, Study
from bfl.registry import STRICT

_OneOrMore = str | Annotated[list[str], Field(min_length=1)]


class OrderTable(pydantic.BaseModel):
    """A table ``[[orders]]``; a list in place of a name stands for each of its names in turn.

    Either ``worse`` says which lines are worse, or ``than`` in which metric the same lines are.
    """

    model_config = STRICT

    metric: _OneOrMore
    better: dict[str, _OneOrMore] = Field(min_length=1)
    worse: dict[str, _OneOrMore] = Field(default_factory=dict)
    than: str = ""
    beforehand: bool = True
    published: float | list[float] | None = None

    @pydantic.model_validator(mode="after")
    def _lines_or_a_metric(self) -> Self:
        if bool(self.worse) == bool(self.than):
            raise ValueError("allowed: either worse, other lines, or than, another metric of these")
        given = self.published if isinstance(self.published, list) else [self.published]
        if len(given) not in (1, count := len(self._expanded())):
            raise ValueError(f"published has {len(given)} numbers; allowed: one, or {count}")
        return self

    def orders(self) -> list[Order]:
        """Return an order for each metric, each better and each worse line."""
        expanded = self._expanded()
        given = self.published if isinstance(self.published, list) else [self.published]
        published = given if len(given) > 1 else given * len(expanded)
        return [
            Order(*order, self.than, self.beforehand, number)
            for order, number in zip(expanded, published, strict=True)
        ]

    def _expanded(self) -> list[tuple[str, dict[str, str], dict[str, str]]]:
        return list(product(_each(self.metric), _lines(self.better), _lines(self.worse)))


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
    units = {column.metric: (column.higher_is_better, column.scale) for column in study.columns}
    problems += [
        f"orders: than is {order.than!r}; allowed: another column with the better side and the "
        f"scale that {order.metric!r} has"
        for order in study.orders
        if order.than
        and (order.than == order.metric or units.get(order.than) != units.get(order.metric))
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
