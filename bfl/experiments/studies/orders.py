"""Whether the orders that a study expects are those of its results, in words."""

from __future__ import annotations

from collections.abc import Callable

from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.comparisons import INTERVAL, NOT, TEST, Pairing, mark
from bfl.experiments.studies.paired import Paired
from bfl.experiments.studies.study import Cell, Order

HOW_SURE = {
    TEST: "by interval and exact test",
    INTERVAL: "by the interval (too few seeds for the exact test, or it does not reject)",
}


def order_entries(pairing: Pairing, describe: Callable[[Paired, Column], str]) -> list[str]:
    """Return an entry of a Markdown list for each column in which the study expects an order.

    Args:
        pairing: Compares the study's lines.
        describe: Returns a comparison's numbers in words.
    """
    entries = []
    for column in pairing.study.columns:
        orders = [order for order in pairing.study.orders if order.metric == column.metric]
        said = [
            sentence
            for order in orders
            for better, worse in order.pairs(pairing.study.cells())
            if (sentence := _sentence(pairing, column, order, (better, worse), describe))
        ]
        entries += [f"- Expected of {column.heading}: {'; '.join(said)}."] if said else []
    return entries


def _sentence(
    pairing: Pairing,
    column: Column,
    order: Order,
    lines: tuple[Cell, Cell],
    describe: Callable[[Paired, Column], str],
) -> str:
    """Return what is known of one expected order; nothing where no two seeds tell."""
    better, worse = lines
    paired = pairing.compare(better, worse, column)
    if not paired.testable:
        return ""
    differing = [name for name in order.worse if better.labels[name] != worse.labels[name]]
    told = {*order.better, *differing}
    cells = pairing.study.cells()
    shared = [
        label
        for name, label in better.labels.items()
        if name not in told and len({cell.labels[name] for cell in cells}) > 1
    ]
    names = [" ".join(cell.labels[name] for name in differing) for cell in lines]
    what = " ".join([*shared, f"{names[0]} better than {names[1]}"])
    return f"{what}: {_found(paired, column)} ({describe(paired, column)})"


def _found(paired: Paired, column: Column) -> str:
    """Return whether a difference, the better one's minus the other's, is as expected."""
    sure = mark(paired)
    if sure == NOT:
        return "no significant order"
    as_expected = (paired.difference > 0) == bool(column.higher_is_better)
    return f"{'found' if as_expected else 'the reverse is found'}, {HOW_SURE[sure]}"
