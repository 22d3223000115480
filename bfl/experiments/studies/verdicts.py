"""Sentences about orders, written from results: what a page of results may say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from bfl.errors import ConfigurationError, unknown_name
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.comparisons import INTERVAL, NOT, TEST, mark
from bfl.experiments.studies.orders import HOW_SURE, order_entries
from bfl.experiments.studies.paired import Paired
from bfl.experiments.studies.study import Cell
from bfl.experiments.studies.table import Line, StudyTable

_ORDERS = {
    TEST: f"{{}}, {HOW_SURE[TEST]}",
    INTERVAL: f"{{}}, {HOW_SURE[INTERVAL]}",
    NOT: "no significant order",
}
_NO_ORDER = "no order without two seeds in common"
_ONE_COMPUTATION = "the same computation"
_NOT_REACHED = "not reached, or not finite, in a run"


def verdicts(table: StudyTable) -> str:
    """Return what the results say of orders, as a Markdown list: an entry a group and column.

    Each line of a group is compared with the one of the best mean, over the seeds that both have;
    and the lines between which the study expects an order with each other.
    """
    entries = [
        entry
        for lines in _groups(table)
        for number, column in enumerate(table.columns)
        if column.higher_is_better is not None
        for entry in _entry(table, lines, number)
    ]
    entries += order_entries(table.pairing, _of)
    return "\n".join([f"{' '.join(table.notes[:2])}\n", *entries]) + "\n"


def _groups(table: StudyTable) -> Iterable[list[Line]]:
    groups: dict[tuple[str, ...], list[Line]] = {}
    for line in table.lines:
        shared = (text for name, text in line.labels.items() if name not in table.compared)
        groups.setdefault(tuple(shared), []).append(line)
    return groups.values()


def _entry(table: StudyTable, lines: Sequence[Line], number: int) -> list[str]:
    column = table.columns[number]
    means = [(ours, line) for line in lines if (ours := line.numbers[number].ours) is not None]
    cell = table.pairing.best([Cell(line.labels) for _, line in means], column)
    if cell is None:
        return []
    ours, best = next(pair for pair in means if Cell(pair[1].labels) == cell)
    where = [text for name, text in best.labels.items() if name not in table.compared]
    title = ", ".join([*where, column.heading])
    said: dict[str, list[str]] = {}
    for mean, line in means:
        if line is best:
            continue
        cells = Cell(line.labels), Cell(best.labels)
        paired = table.pairing.compare(*cells, column)
        text = f"{_name(table, line)} {mean:.{column.decimals}f}"
        if not math.isfinite(mean):
            said.setdefault(_NOT_REACHED, []).append(_name(table, line))
        elif not paired.testable:
            said.setdefault(_NO_ORDER, []).append(text)
        elif table.pairing.same(*cells):
            said.setdefault(_ONE_COMPUTATION, []).append(text)
        else:
            order = _ORDERS[mark(paired)].format("worse")
            said.setdefault(order, []).append(f"{text} ({_of(paired, column)})")
    first = f"- {title}: the best mean is that of {_name(table, best)}, {ours:.{column.decimals}f}."
    return [" ".join([first, *(f"{how.capitalize()}: {'; '.join(t)}." for how, t in said.items())])]


def _name(table: StudyTable, line: Line) -> str:
    """Return a line's labels in which the lines of the table differ."""
    labels = {k: v for k, v in line.labels.items() if k in table.compared}
    differing = [
        text
        for name, text in labels.items()
        if len({each.labels[name] for each in table.lines}) > 1
    ]
    return " ".join(differing or labels.values())


def _of(paired: Paired, column: Column) -> str:
    numbers = (paired.difference, paired.low, paired.high)
    difference, low, high = (f"{number:+.{column.decimals}f}" for number in numbers)
    return f"{difference}, {low} to {high}, {paired.pairs} seeds, p = {paired.p_value:.2g}"


def difference(table: StudyTable, one: str, other: str) -> str:
    """Return how one line stands to another as a Markdown list: an entry a group that has both.

    Of each column with a better side the means over the seeds that both have and their paired
    difference; of the other columns the one line's number.

    Args:
        table: The study's table.
        one: The labels of a line in which lines differ, such as ``HBFL``.
        other: Those of the other line.

    Raises:
        ConfigurationError: There is no such line.
    """
    names = list(dict.fromkeys(_name(table, line) for line in table.lines))
    for name in (one, other):
        if name not in names:
            raise ConfigurationError(unknown_name("line", name, names))
    entries = []
    for lines in _groups(table):
        found = {_name(table, line): line for line in lines}
        if one in found and other in found and found[one].done and found[other].done:
            entries.append(_difference_in_group(table, found[one], found[other]))
    return "\n".join([f"{' '.join(table.notes[:2])}\n", *entries]) + "\n"


def _difference_in_group(table: StudyTable, one: Line, other: Line) -> str:
    said, own = [], []
    for number, column in enumerate(table.columns):
        ours, theirs = one.numbers[number].ours, other.numbers[number].ours
        if ours is None:
            continue
        if column.higher_is_better is None:
            own.append(f"{column.heading} {ours:.{column.decimals}f}")
        elif theirs is not None:
            shared = table.pairing.both(Cell(one.labels), Cell(other.labels), column)
            if shared:
                ours, theirs = (sum(side) / len(shared) for side in zip(*shared, strict=True))
            means = f"{ours:.{column.decimals}f} against {theirs:.{column.decimals}f}"
            said.append(f"{column.heading} {means}, {_order(table, one, other, column)}")
    where = [text for name, text in one.labels.items() if name not in table.compared]
    title = ", ".join([*where, f"{_name(table, one)} against {_name(table, other)}"])
    alone = [f"Of {_name(table, one)} itself: {', '.join(own)}."] if own else []
    return " ".join([f"- {title}: {'; '.join(said)}.", *alone])


def _order(table: StudyTable, one: Line, other: Line, column: Column) -> str:
    """Return in words what is known of the order of two lines in a column."""
    cells = Cell(one.labels), Cell(other.labels)
    paired = table.pairing.compare(*cells, column)
    if table.pairing.same(*cells):
        return _ONE_COMPUTATION
    if any(map(math.isinf, (v for cell in cells for v in table.pairing.values(cell, column)))):
        return _NOT_REACHED
    if not paired.testable:
        return _NO_ORDER
    better = (paired.difference > 0) == column.higher_is_better
    order = _ORDERS[mark(paired)].format("better" if better else "worse")
    return f"{order} ({_of(paired, column)})"
