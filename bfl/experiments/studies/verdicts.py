"""Sentences about orders, written from results: what a page of results may say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from bfl.errors import ConfigurationError, unknown_name
from bfl.experiments.studies.chance import against_chance, chance_said, floor_said
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.orders import (
    ONE_COMPUTATION,
    numbers_of,
    order_entries,
    order_of,
    plain,
    what_is_missing,
)
from bfl.experiments.studies.study import Cell
from bfl.experiments.studies.table import Line, StudyTable

_BETTER_WHERE_BOTH_ARE = "better over the seeds that both have"


def verdicts(table: StudyTable) -> str:
    """Return what the results say of orders, as a Markdown list: an entry a group and column.

    Each line of a group is compared with the one of the best mean among those with the same seeds,
    the most, or with the one that alone has the most, over the seeds that both have; the gains of
    sorting by an uncertainty with what an order at random reaches by chance; and the lines between
    which the study expects an order with each other.
    """
    entries = [
        entry
        for lines in _groups(table)
        for number, column in enumerate(table.columns)
        if column.higher_is_better is not None
        for entry in _entry(table, lines, number)
    ]
    entries += [
        entry
        for lines in _groups(table)
        for column in table.columns
        if (entry := _against_chance(table, lines, column))
    ]
    entries += order_entries(table.pairing)
    return "\n".join([f"{' '.join(table.notes[:2])}\n", *entries]) + "\n"


def _groups(table: StudyTable) -> Iterable[list[Line]]:
    """Yield the lines that are compared with each other, as far as they have results."""
    lines = {Cell(line.labels).key: line for line in table.lines}
    for _, cells in table.pairing.groups():
        yield [lines[cell.key] for cell in cells]


def _entry(table: StudyTable, lines: Sequence[Line], number: int) -> list[str]:
    """Return the entry of a group and a column; none where there are no two lines to compare."""
    pairing, column = table.pairing, table.columns[number]
    means = [
        (Cell(line.labels), ours)
        for line in lines
        if (ours := line.numbers[number].ours) is not None
    ]
    cells = [cell for cell, _ in means]
    best = pairing.best(cells, column)
    alone = _alone(table, cells, column)
    where = [text for name, text in lines[0].labels.items() if name not in table.compared]
    title = ", ".join([*where, column.heading])
    if not best and not alone:
        lost = _without_a_number(table, cells, column)
        return [f"- {title}: no best mean: {'; '.join(lost)}."] if lost and len(means) > 1 else []
    # Of lines that are one computation one is named as the best.
    tied = alone or [
        cell for i, cell in enumerate(best) if not any(pairing.same(cell, o) for o in best[:i])
    ]
    said: dict[str, list[str]] = {}
    for cell, mean in means:
        if cell not in tied:
            how, text = _against(table, cell, tied, column)
            shown = f"{_name(table, cell)} {plain(mean, column.decimals)}"
            said.setdefault(how, []).append(f"{shown} ({text})" if text else shown)
    ours = next(mean for cell, mean in means if cell == tied[0])
    first = f"- {title}: {_first(table, cells, tied, column)} {plain(ours, column.decimals)}."
    return [" ".join([first, *(f"{how.capitalize()}: {'; '.join(t)}." for how, t in said.items())])]


def _alone(table: StudyTable, cells: Sequence[Cell], column: Column) -> list[Cell]:
    """Return the line that alone has its seeds, the most, with which others are compared."""
    most = table.pairing.with_most_seeds(cells, column)
    return most if len(most) == 1 < len(cells) else []


def _first(table: StudyTable, cells: Sequence[Cell], tied: Sequence[Cell], column: Column) -> str:
    """Return what the lines are that the others of a group are compared with, before their mean."""
    most = table.pairing.with_most_seeds(cells, column)
    *others, last = (_name(table, cell) for cell in tied)
    seeds = len(table.pairing.values(most[0], column))
    of_seeds = f"{seeds} seed{'s' * (seeds > 1)}"
    as_many = sum(len(table.pairing.seeds(cell, column)) == seeds for cell in cells)
    if len(most) == 1:
        if as_many == 1:
            return f"no best mean, as {last} alone has {of_seeds}; the others against its mean,"
        why = f"lines differ in which {of_seeds} they have"
        return f"no best mean, as {why}; the others against the mean of {last},"
    which = f"{'the same ' * (as_many > len(most))}{of_seeds}"
    among = f"of the lines with {which}, " if len(most) < len(cells) else ""
    names = f"a tie of {', '.join(others)} and {last}" if others else f"that of {last}"
    return f"{among}the best mean is {names},"


def _against(
    table: StudyTable, cell: Cell, best: Sequence[Cell], column: Column
) -> tuple[str, str]:
    """Return what is known of a line's order to the best ones, and the numbers of it."""
    pairing = table.pairing
    if any(pairing.same(cell, other) for other in best):
        return ONE_COMPUTATION, ""
    other, paired = pairing.against(cell, best, column)
    if not paired.testable:
        return pairing.no_order(cell, other), ""
    numbers = numbers_of(paired, column, _name(table, cell), _name(table, other))
    told = f"against {_name(table, other)} {numbers}" if len(best) > 1 else numbers
    return order_of(paired, column, _BETTER_WHERE_BOTH_ARE, "worse"), told


def _against_chance(table: StudyTable, lines: Sequence[Line], column: Column) -> str:
    """Return the entry of how the gains of a group's lines stand to chance; empty: no gains."""
    said = []
    for line in lines:
        cell = Cell(line.labels)
        results = table.pairing.results(cell)
        if found := against_chance(column, results):
            floor = floor_said(results)
            text = f"{_name(table, cell)} {chance_said(column, found)}"
            said.append(f"{text}, {floor}" if floor else text)
    where = [text for name, text in lines[0].labels.items() if name not in table.compared]
    title = ", ".join([*where, column.heading])
    return f"- {title}, against an order at random: {'; '.join(said)}." if said else ""


def _without_a_number(table: StudyTable, cells: Sequence[Cell], column: Column) -> list[str]:
    """Return which lines have runs whose number is not finite, in words."""
    said = []
    for cell in cells:
        values = table.pairing.values(cell, column)
        lost = sum(not math.isfinite(value) for value in values)
        missing = f"{_name(table, cell)} {what_is_missing(column)} in {lost} of {len(values)} runs"
        said += [missing] if lost else []
    return said


def _name(table: StudyTable, cell: Cell) -> str:
    """Return a line's labels in which the lines of the table differ."""
    labels = {k: v for k, v in cell.labels.items() if k in table.compared}
    differing = [
        cell.named(name) for name in labels if len({each.labels[name] for each in table.lines}) > 1
    ]
    return " ".join(differing or map(cell.named, labels))


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
    names = list(dict.fromkeys(_name(table, Cell(line.labels)) for line in table.lines))
    for name in (one, other):
        if name not in names:
            raise ConfigurationError(unknown_name("line", name, names))
    entries = []
    for lines in _groups(table):
        found = {_name(table, Cell(line.labels)): line for line in lines}
        if one in found and other in found:
            entries.append(_difference_in_group(table, found[one], found[other]))
    return "\n".join([f"{' '.join(table.notes[:2])}\n", *entries]) + "\n"


def _difference_in_group(table: StudyTable, one: Line, other: Line) -> str:
    said, own = [], []
    cells = Cell(one.labels), Cell(other.labels)
    for number, column in enumerate(table.columns):
        ours, theirs = one.numbers[number].ours, other.numbers[number].ours
        if ours is None:
            continue
        if column.higher_is_better is None:
            own.append(f"{column.heading} {plain(ours, column.decimals)}")
        elif theirs is not None:
            shared = table.pairing.both(*cells, column)
            if shared:
                ours, theirs = (sum(side) / len(shared) for side in zip(*shared, strict=True))
            means = " against ".join(plain(n, column.decimals) for n in (ours, theirs))
            said.append(f"{column.heading} {means}, {_order(table, *cells, column)}")
    where = [text for name, text in one.labels.items() if name not in table.compared]
    mine, its = (_name(table, cell) for cell in cells)
    title = ", ".join([*where, f"{mine} against {its}"])
    alone = [f"Of {mine} itself: {', '.join(own)}."] if own else []
    return " ".join([f"- {title}: {'; '.join(said)}.", *alone])


def _order(table: StudyTable, one: Cell, other: Cell, column: Column) -> str:
    """Return in words what is known of the order of two lines in a column."""
    paired = table.pairing.compare(one, other, column)
    if table.pairing.same(one, other):
        return ONE_COMPUTATION
    if not paired.testable:
        return table.pairing.no_order(one, other)
    numbers = numbers_of(paired, column, _name(table, one), _name(table, other))
    return f"{order_of(paired, column, 'better', 'worse')} ({numbers})"
