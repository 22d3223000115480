"""Which of the orders that studies declare are found: tests, Holm's correction, and the words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.comparisons import LEAST_PAIRS, Pairing
from bfl.experiments.studies.curves import rounds_to
from bfl.experiments.studies.images import deviation_by_images
from bfl.experiments.studies.study import Cell, Order, Study

LEVEL = 0.05
"""A page of orders that are none calls any of them found at most this often."""

LEAST_SEEDS = 6
"""Fewer seeds are suggestive at best."""

DEVIATIONS = 2.0
"""Differences of accuracies below so many standard errors by the test images carry nothing."""

MOST_EXACT = 99_999
"""Of more permutations so many are drawn, by a fixed seed."""

_NOISE = 1e-12
"""What is smaller has come of rounding sums that are 0."""


@dataclass(frozen=True)
class Declared:
    """A declared order of two lines beside what their runs have.

    Attributes:
        pairing: Its study's runs.
        order: The order.
        lines: The line that is expected to be better, and the other one.
        column: In what.
        than: The other line's column, where that is another.
        sides: (2, n) numbers of both, larger ones better; what is not finite is below all others.
        p_value: After Holm's correction; 1 where no test is made.
        declared: How many orders the correction is over.
    """

    pairing: Pairing
    order: Order
    lines: tuple[Cell, Cell]
    column: Column
    than: Column | None
    sides: npt.NDArray[np.float64]
    p_value: float = 1.0
    declared: int = 1

    @property
    def seeds(self) -> int:
        """The number of seeds that both have."""
        return int(self.sides.shape[1])

    @property
    def counts(self) -> bool:
        """Whether the order is declared before the runs, and is one that they can contradict."""
        return self.order.beforehand and self.seeds >= LEAST_PAIRS and not self.same

    @property
    def same(self) -> bool:
        """Whether both lines are one computation."""
        return self.than is None and self.pairing.same(*self.lines)

    @property
    def verdict(self) -> str:
        """What may be said of the order."""
        if self.same:
            return "the same computation"
        if self.seeds < LEAST_PAIRS:
            return self.pairing.no_order(*self.lines)
        one, other = self.sides
        if self.counts and self.seeds >= LEAST_SEEDS:
            found = "found" if self.p_value <= LEVEL else "not found"
        elif (one > other).all():
            found = "suggestive"
        else:
            found = "suggestive of the reverse" if (one < other).all() else "seeds differ"
        by_images = self.by_images
        few = by_images is not None and abs(self.differences.mean()) < DEVIATIONS * by_images
        claims = found not in ("not found", "seeds differ")
        return "within what test images tell" if few and claims else found

    @property
    def differences(self) -> npt.NDArray[np.float64]:
        """The differences by seed, in the column's unit; not finite where a number is not."""
        with np.errstate(invalid="ignore"):
            found = (
                self.sides[0] - self.sides[1]
                if self.column.higher_is_better
                else (self.sides[1] - self.sides[0])
            )
        return np.asarray(found, np.float64)

    @property
    def by_images(self) -> float | None:
        """The standard error of one seed's difference by the test images; None: of no share.

        It takes both lines' errors for independent, and so is no less than McNemar's.
        """
        columns = (self.column, self.than or self.column)
        both = [
            deviation_by_images(column, self.pairing.results(cell))
            for cell, column in zip(self.lines, columns, strict=True)
        ]
        known = [deviation for deviation in both if deviation is not None]
        return math.hypot(*known) if len(known) == len(both) else None


def declared_orders(pairings: Iterable[Pairing]) -> list[Declared]:
    """Return all orders that the studies of a page declare, tested together.

    Each order is tested to its declared side by permutations of both lines' ranks, those of equal
    numbers alike: within each seed where the exact level of that, 2^-n of n seeds, can outlive the
    correction, else between all runs of both, which needs fewer seeds and takes less account of
    them. Which one is taken depends on numbers of seeds and orders alone. Holm's correction is over
    the page's orders that have two seeds or more, also those whose seeds are too few for a test.

    Source:
        Holm (1979), "A simple sequentially rejective multiple test procedure".
    """
    orders = [found for pairing in pairings for found in _of_study(pairing)]
    counted = [i for i, each in enumerate(orders) if each.counts]
    total = len(counted)
    raw = np.array([permutation_p(orders[i].sides, total) for i in counted])
    rising = np.argsort(raw, kind="stable")
    corrected = np.maximum.accumulate((total - np.arange(total)) * raw[rising])
    for rank, p_value in zip(rising, np.minimum(corrected, 1.0), strict=True):
        i = counted[rank]
        orders[i] = replace(orders[i], p_value=float(p_value), declared=total)
    return orders


def permutation_p(sides: npt.NDArray[np.float64], orders: int = 1) -> float:
    """Return the one-sided p-value of the first side's numbers being larger; 1 of too few seeds.

    Args:
        sides: (2, n) numbers, a column a seed.
        orders: How many orders are tested together.

    Example:
        >>> better = np.array([[7.0, 8, 9, 10, 11, 12], [1, 2, 3, 4, 5, 6]])
        >>> permutation_p(better) == 1 / 2**6, permutation_p(better, 28) == 1 / 924
        (True, True)
    """
    from scipy import stats

    seeds = sides.shape[1]
    if seeds < LEAST_SEEDS:
        return 1.0
    one, other = stats.rankdata(sides).reshape(2, seeds)
    within = orders / 2**seeds <= LEVEL
    test = stats.permutation_test(
        (one, other),
        lambda a, b, axis: a.sum(axis=axis) - b.sum(axis=axis),
        permutation_type="samples" if within else "independent",
        alternative="greater",
        vectorized=True,
        n_resamples=MOST_EXACT,
        rng=0,
    )
    return float(test.pvalue)


def _of_study(pairing: Pairing) -> Iterable[Declared]:
    """Yield the orders that a study declares, those of a column together."""
    study = pairing.study
    by_metric = {column.metric: column for column in study.columns}
    for column in study.columns:
        for order in study.orders:
            if order.metric != column.metric:
                continue
            than = by_metric.get(order.than)
            sign = 1.0 if column.higher_is_better else -1.0
            for lines in order.pairs(study.cells()):
                if not any(map(pairing.results, lines)):
                    continue
                both = pairing.both(*lines, column, than)
                sides = sign * np.array(both, np.float64).reshape(-1, 2).T
                sides = np.where(np.isfinite(sides), sides, -math.inf)
                yield Declared(pairing, order, lines, column, than, sides)


def verdicts(pairing: Pairing, orders: Iterable[Declared] | None = None) -> str:
    """Return what the results say of the orders that a study declares, as a Markdown list.

    Args:
        pairing: The study's runs.
        orders: All orders of the page; by default the study's alone.
    """
    found = [each for each in orders or declared_orders([pairing]) if each.pairing is pairing]
    if not found:
        return "No declared order has runs.\n"
    total = max(each.declared for each in found)
    heads = {
        verdict: f"{verdict} {sum(each.verdict == verdict for each in found)}"
        for verdict in dict.fromkeys(each.verdict for each in found)
    }
    entries = [
        f"Declared orders: {', '.join(heads.values())}. Found is what a test of {LEAST_SEEDS} "
        f"seeds or more carries after Holm over the page's {total}; suggestive is no test.\n"
    ]
    for column in dict.fromkeys(each.column.metric for each in found):
        of_column = [each for each in found if each.column.metric == column]
        entries.append(f"- {of_column[0].column.heading}:")
        entries += [f"  - {_sentence(each)}." for each in of_column]
    return "\n".join(entries) + "\n"


def _sentence(each: Declared) -> str:
    """Return an order's lines, verdict and numbers in words."""
    better, worse = each.lines
    order, study = each.order, each.pairing.study
    differing = [name for name in order.worse if better.labels[name] != worse.labels[name]]
    told = {*_understood(study, order), *differing}
    shared = [
        better.named(name)
        for name in better.labels
        if name not in told and len({cell.labels[name] for cell in study.cells()}) > 1
    ]
    one, other = (" ".join(map(cell.named, differing)) for cell in each.lines)
    if each.than:
        shared = [*map(better.named, order.better), *shared]
        one, other = each.column.heading, each.than.heading
    after = "" if order.beforehand else ", declared after the runs"
    numbers = f" ({numbers_of(each, one, other)})" if each.seeds >= LEAST_PAIRS else ""
    what = " ".join([*shared, f"{one} better than {other}"])
    return f"{what}: {each.verdict}{after}{'' if each.same else numbers}"


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


def numbers_of(each: Declared, one: str, other: str) -> str:
    """Return the mean difference with its deviations over seeds and by test images, in words.

    Args:
        each: An order of two seeds at least.
        one: The one line's name.
        other: The other's.
    """
    column, digits = each.column, each.column.decimals
    tested = each.counts and each.seeds >= LEAST_SEEDS
    end = f"{each.seeds} seeds{f', p = {each.p_value:.2g}' if tested else ''}"
    lost = [int(np.isinf(side).sum()) for side in each.sides]
    if any(lost):
        said = [
            f"in {count} of {each.seeds} {name} {what_is_missing(column)}"
            for name, count in zip((one, other), lost, strict=True)
            if count
        ]
        return f"{' and '.join(said)}; {end}"
    text = f"{signed(float(each.differences.mean()), digits)} ± "
    text += f"{plain(float(each.differences.std(ddof=1)), digits)} over {end}"
    return (
        text if each.by_images is None else f"{text}; ± {plain(each.by_images, digits)} by images"
    )


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
