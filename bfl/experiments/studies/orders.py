"""Whether the orders that a study expects are those of its results, in words."""

from __future__ import annotations

from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.comparisons import (
    INTERVAL,
    NOT,
    TEST,
    TEST_ALONE,
    Pairing,
    first_is_better,
    mark,
)
from bfl.experiments.studies.curves import rounds_to
from bfl.experiments.studies.paired import Paired
from bfl.experiments.studies.study import Cell, Order, Study

HOW_SURE = {
    TEST: "by interval and exact test",
    TEST_ALONE: "by the exact test alone (the interval holds 0)",
    INTERVAL: "by the interval (too few seeds for the exact test, or it does not reject)",
}
"""How sure an order is, in words, by its mark."""
_WITHOUT_AN_INTERVAL = "by the exact test alone"
_NOISE = 1e-12
"""What is smaller has come of rounding sums that are 0."""
ONE_COMPUTATION = "the same computation"
_NO_ORDER = "no significant order"


def order_entries(pairing: Pairing) -> list[str]:
    """Return an entry of a Markdown list for each column in which the study expects an order.

    Several orders of one column stand below it, each in a line of its own.

    Args:
        pairing: Compares the study's lines.
    """
    entries = []
    for column in pairing.study.columns:
        orders = [order for order in pairing.study.orders if order.metric == column.metric]
        said = [
            sentence
            for order in orders
            for better, worse in order.pairs(pairing.study.cells())
            if (sentence := _sentence(pairing, column, order, (better, worse)))
        ]
        told = f" {said[0]}." if len(said) == 1 else "".join(f"\n  - {each}." for each in said)
        entries += [f"- Expected of {column.heading}:{told}"] if said else []
    return entries


def _sentence(pairing: Pairing, column: Column, order: Order, lines: tuple[Cell, Cell]) -> str:
    """Return what is known of one expected order; nothing while neither line has a run."""
    better, worse = lines
    if not pairing.results(better) and not pairing.results(worse):
        return ""
    differing = [name for name in order.worse if better.labels[name] != worse.labels[name]]
    told = {*_understood(pairing.study, order), *differing}
    cells = pairing.study.cells()
    shared = [
        better.named(name)
        for name in better.labels
        if name not in told and len({cell.labels[name] for cell in cells}) > 1
    ]
    one, other = (" ".join(map(cell.named, differing)) for cell in lines)
    than = next((c for c in pairing.study.columns if c.metric == order.than), None)
    if than:
        shared = [*map(better.named, order.better), *shared]
        one, other = column.heading, than.heading
    what = " ".join([*shared, f"{one} better than {other}"])
    paired = pairing.compare(better, worse, column, than)
    if not than and pairing.same(better, worse):
        return f"{what}: {ONE_COMPUTATION}"
    if not paired.testable:
        return f"{what}: {pairing.no_order(better, worse)}"
    found = order_of(paired, column, "found", "the reverse is found")
    return f"{what}: {found} ({numbers_of(paired, column, one, other)})"


def _understood(study: Study, order: Order) -> set[str]:
    """Return the labels that need not be told: all of the column's orders are of such a line.

    What only the better line's labels name says which line it is; what both name, where.
    """
    alike = [other.better for other in study.orders if other.metric == order.metric]
    return {
        name
        for name in order.better.keys() - order.worse.keys()
        if len({labels.get(name) for labels in alike}) == 1
    }


def order_of(paired: Paired, column: Column, better: str, worse: str) -> str:
    """Return in words whether the one line is better than the other, and how sure that is.

    Args:
        paired: The one line against the other.
        column: In what they are compared; it has a better side.
        better: What is said where the one is better.
        worse: What is said where it is worse.
    """
    sure = mark(paired)
    if sure == NOT:
        return _NO_ORDER
    how = HOW_SURE[sure] if paired.finite or sure != TEST_ALONE else _WITHOUT_AN_INTERVAL
    return f"{better if first_is_better(paired, column) else worse}, {how}"


def numbers_of(paired: Paired, column: Column, one: str, other: str) -> str:
    """Return a comparison's numbers in words: its difference, or why there is none; its p-value.

    Args:
        paired: The one line against the other, at least two pairs.
        column: In what they are compared.
        one: The one line's name.
        other: The other's.
    """
    known = f"{paired.pairs} seeds, p = {paired.p_value:.2g}"
    if paired.finite:
        numbers = (paired.difference, paired.low, paired.high)
        difference, low, high = (signed(number or 0.0, column.decimals) for number in numbers)
        return f"{difference}, {low} to {high}, {known}"
    lost = ((one, paired.one_not_finite), (other, paired.other_not_finite))
    said = [
        f"in {count} of {paired.pairs} pairs {name} {what_is_missing(column)}"
        for name, count in lost
        if count
    ]
    return f"{' and '.join(said)}, so no difference and no interval, {known}"


def signed(number: float, decimals: int) -> str:
    """Return a number with its sign; one that would be nothing but zeros in powers of ten.

    Example:
        >>> signed(-1.25, 1), signed(0.0004, 3), signed(0.0, 3)
        ('-1.2', '+4.0e-04', '+0.000')
    """
    shown = plain(number, decimals)
    return shown if shown.startswith("-") else f"+{shown}"


def plain(number: float, decimals: int) -> str:
    """Return a number; one that would be nothing but zeros in powers of ten.

    Example:
        >>> plain(-1.25, 1), plain(0.0004, 3), plain(0.0, 3)
        ('-1.2', '4.0e-04', '0.000')
    """
    exact = 0.0 if abs(number) < _NOISE else number
    text = f"{exact:.{decimals}f}"
    return text if float(text) or not exact else f"{exact:.1e}"


def what_is_missing(column: Column) -> str:
    """Return what is to be said of a line whose number in a column is not finite in some run."""
    reached = rounds_to(column.metric)
    return f"never reached {reached[1]:g}" if reached else "is not finite"
