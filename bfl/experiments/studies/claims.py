"""Claims of papers: rankings of two lines that a study's file declares, tested on its runs.

A claim is *found* or *contradicted* by tests of six seeds or more, after Holm's correction over all
claims of a page. With fewer seeds, or declared after the runs, it is *suggestive* if all seeds
agree with it, and *suggestive reverse* if all seeds disagree. Everything else is *open*.

Sources:
    Holm (1979), "A simple sequentially rejective multiple test procedure"; Wilcoxon (1945),
    "Individual comparisons by ranking methods"; Mann and Whitney (1947), "On a test of whether one
    of two random variables is stochastically larger than the other".
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.experiments.results.figures.style import COLORS, new_figure, styled
from bfl.experiments.results.table import ABSENT, markdown_table
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.run_result import RunResult, short
from bfl.experiments.studies.study import Choice, Order, Study
from bfl.experiments.studies.table import StudyTable, deviation_by_images

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as MatplotlibFigure

LEVEL = 0.05
"""The family-wise error rate of a page's claims."""

LEAST_SEEDS = 6
"""The fewest seeds of a test."""

IMAGE_ERRORS = 2.0
"""The least difference for a verdict, in standard errors by the test images."""

RESAMPLES = 99_999
"""The most permutations of a test; if there are more, so many are drawn with a fixed seed."""

CONFIDENCE = 0.95
"""The confidence level of a difference's interval."""

VERDICTS = {"found": 0, "contradicted": 1, "suggestive": 2, "suggestive reverse": 4, "open": 6}
"""The verdicts, with the index of their colour in a forest plot."""

FOLDED = 20
"""The most claims in a table that is not folded."""

Sides = npt.NDArray[np.float64]


def claims(studies: Mapping[str, StudyTable]) -> pd.DataFrame:
    """Return the claims of a page, a row each, tested together.

    Returns:
        Columns ``study``, ``metric`` and ``claim``; ``published``, ``ours``, ``low`` and ``high``:
        the difference "better − worse" in the column's unit with its interval over the seeds;
        ``images``: its standard error by the test images; ``p``, after Holm's correction; ``seeds``
        and ``verdict``.
    """
    import pandas as pd

    rows = [{"study": name, **row} for name, study in studies.items() for row in _rows(study)]
    table = pd.DataFrame(rows, columns=[*_COLUMNS, "sides", "beforehand"])
    family = table.beforehand & (table.seeds >= 2)
    for name, flip in (("p", 1), ("p_reverse", -1)):
        raw = [p_value(sides[::flip], int(family.sum())) for sides in table.sides[family]]
        table.loc[family, name] = holm(raw)
    table["verdict"] = [_verdict(row) for row in table.itertuples()]
    return table[list(_COLUMNS)]


_COLUMNS = (
    *("study", "metric", "claim", "published", "ours", "low", "high", "images"),
    *("p", "p_reverse", "seeds", "verdict"),
)


def holm(p_values: Iterable[float]) -> Sides:
    """Return p-values, corrected by Holm's procedure.

    Example:
        >>> holm([0.01, 0.04, 0.03]).round(2).tolist()
        [0.03, 0.06, 0.06]
    """
    raw = np.array(list(p_values), np.float64)
    rising = np.argsort(raw, kind="stable")
    corrected = np.maximum.accumulate((raw.size - np.arange(raw.size)) * raw[rising])
    raw[rising] = np.minimum(corrected, 1.0)
    return raw


def p_value(sides: Sides, claims: int = 1) -> float:
    """Return the one-sided p-value that the first side is larger; 1 with too few seeds.

    It is that of Wilcoxon's signed-rank test if its least p-value, 2^-n with n seeds, can remain
    significant after the correction. Otherwise it is the greater p-value of two tests: Mann and
    Whitney's, exact if both lines have one distribution, and Student's paired test, which allows
    unequal spreads.

    Args:
        sides: (2, n) numbers, a column for each seed; -inf is worse than any number.
        claims: The number of claims that are tested together.

    Example:
        >>> better = np.array([[7.0, 8, 9, 10, 11, 12], [1, 2, 3, 4, 6, 5]])
        >>> p_value(better) == 1 / 2**6, p_value(better, 28) == 1 / 924
        (True, True)
    """
    from scipy import stats

    seeds = sides.shape[1]
    if seeds < LEAST_SEEDS:
        return 1.0
    exact = stats.PermutationMethod(n_resamples=RESAMPLES, rng=0)
    with np.errstate(all="ignore"):
        if claims / 2**seeds <= LEVEL:
            differences = np.nan_to_num(sides[0] - sides[1], posinf=np.inf, neginf=-np.inf)
            paired = stats.wilcoxon(differences, alternative="greater", method=exact)
            return float(paired.pvalue)
        between = stats.mannwhitneyu(*sides, alternative="greater", method=exact)
        finite = np.maximum(sides, sides[np.isfinite(sides)].min(initial=0.0))
        paired = stats.ttest_rel(*finite, alternative="greater")
    return float(np.fmax(between.pvalue, paired.pvalue))


def _rows(table: StudyTable) -> Iterable[dict[str, Any]]:
    study = table.study
    by_metric = {column.metric: column for column in study.columns}
    places = list(by_metric)
    for order in sorted(study.orders, key=lambda each: places.index(each.metric)):
        column = by_metric[order.metric]
        last = by_metric.get(order.than, column)
        for better, worse in order.pairs(study.cells()):
            one, other = table.line(better), table.line(worse)
            pairs = [
                (one[s], other[s]) for s in one if s in other and _comparable(one[s], other[s])
            ]
            same = all((a.made_as or a.name) == (b.made_as or b.name) for a, b in pairs)
            if not (one and other) or (pairs and same and last is column):
                continue  # nothing to compare, or one computation
            both = _numbers(pairs, column, last)
            low, ours, high = _interval(both)
            sides = both if column.higher_is_better else -both
            yield {
                "metric": column.heading,
                "claim": _named(study, order, better, worse, last.heading),
                "published": _published(study, order, better, worse, column),
                "ours": ours,
                "low": low,
                "high": high,
                "images": _by_images(table, (one.values(), column), (other.values(), last)),
                "p": math.nan,
                "p_reverse": math.nan,
                "seeds": both.shape[1],
                # A value that is not finite is worse than any number.
                "sides": np.where(np.isfinite(sides), sides, -math.inf),
                "beforehand": order.beforehand,
            }


def _comparable(one: RunResult, other: RunResult) -> bool:
    """Return whether two runs have the same partition and test images, as far as both are known."""
    known = ((one.partition, other.partition), (one.data.get("test"), other.data.get("test")))
    return all(mine == theirs for mine, theirs in known if mine and theirs)


def _numbers(pairs: Iterable[tuple[RunResult, RunResult]], column: Column, last: Column) -> Sides:
    """Return the numbers (2, n) of the pairs in which both runs have one.

    They are rounded, so that ties stay ties: curves have fewer digits than final metrics, and
    shares differ in their last bits.
    """
    found = [(a.number(column.metric), b.number(last.metric)) for a, b in pairs]
    kept = [(short(a), short(b)) for a, b in found if a is not None and b is not None]
    scaled = [(short(column.scale * a), short(last.scale * b)) for a, b in kept]
    return np.array(scaled, np.float64).reshape(-1, 2).T


def _interval(both: Sides) -> tuple[float, float, float]:
    """Return the lower end, mean and upper end of the t interval of paired differences."""
    from scipy import stats

    with np.errstate(invalid="ignore"):
        differences = both[0] - both[1]
    if not differences.size or not np.isfinite(differences).all():
        return math.nan, math.nan, math.nan
    mean = float(differences.mean())
    if differences.size < 2 or not (error := stats.sem(differences)):
        return mean, mean, mean
    low, high = stats.t.interval(CONFIDENCE, differences.size - 1, loc=mean, scale=error)
    return float(low), mean, float(high)


def _verdict(row: Any) -> str:
    one, other = row.sides
    clear = math.isnan(row.images) or abs(row.ours) >= IMAGE_ERRORS * row.images
    if row.seeds < 2 or not clear:
        return "open"
    if row.beforehand and row.seeds >= LEAST_SEEDS:
        if row.p <= LEVEL:
            return "found"
        return "contradicted" if row.p_reverse <= LEVEL else "open"
    if (one > other).all():
        return "suggestive"
    return "suggestive reverse" if (one < other).all() else "open"


def _named(study: Study, order: Order, better: Choice, worse: Choice, than: str) -> str:
    """Return a claim as ``where: A > B``, without labels that all lines of the table share."""
    differing = [name for name in order.worse if better.labels[name] != worse.labels[name]]
    one, other = (" ".join(map(cell.named, differing)) for cell in (better, worse))
    shared = [
        better.named(name)
        for name in better.labels
        if name not in differing and len({cell.labels[name] for cell in study.cells()}) > 1
    ]
    what = f"> {than}" if order.than else f"{one} > {other}"
    return f"{', '.join(shared)}: {what}" if shared else what


def _published(study: Study, order: Order, better: Choice, worse: Choice, column: Column) -> float:
    if order.published is not None:
        return order.published
    if study.published is None:
        return math.nan
    one, other = (study.published.entry(cell.key, column.metric)[0] for cell in (better, worse))
    return math.nan if one is None or other is None else one - other


def _by_images(table: StudyTable, *sides: tuple[Collection[RunResult], Column]) -> float:
    """Return a difference's standard error by the test images, for independent errors."""
    every = [result for _, result in table.runs]
    errors = [deviation_by_images(column, results, every) for results, column in sides]
    return math.nan if None in errors else math.hypot(*(error or 0.0 for error in errors))


def claims_markdown(table: pd.DataFrame, decimals: Mapping[str, int]) -> str:
    """Return a page's claims as Markdown: counts of verdicts, then a row for each claim.

    Args:
        table: See ``claims``.
        decimals: The number of decimals by a metric's heading.
    """
    import pandas as pd

    shown = claims_shown(table, decimals)
    counts = pd.crosstab(table.study, table.verdict).reindex(columns=VERDICTS, fill_value=0)
    if len(counts) == 1:
        shown = shown.drop(columns="study")
    every = markdown_table(shown)
    if len(shown) > FOLDED:
        every = f"<details><summary>All {len(shown)} claims</summary>\n\n{every}\n</details>\n"
    return f"{markdown_table(counts.reset_index())}\n{every}"


def claims_shown(table: pd.DataFrame, decimals: Mapping[str, int]) -> pd.DataFrame:
    """Return the claims as text, a row each; for the arguments see ``claims_markdown``."""
    import pandas as pd

    def number(value: float, metric: str) -> str:
        return ABSENT if math.isnan(value) else f"{value:+.{decimals[metric]}f}"

    return pd.DataFrame(
        {
            "study": table.study,
            "claim": table.claim,
            "metric": table.metric,
            "published": list(map(number, table.published, table.metric)),
            "ours (95 %)": [
                ABSENT
                if math.isnan(row.ours)
                else f"{number(row.ours, row.metric)} ({number(row.low, row.metric)} to "
                f"{number(row.high, row.metric)})"
                for row in table.itertuples()
            ],
            "seeds": table.seeds,
            "p": [
                f"{row.p:.2g}" if row.seeds >= LEAST_SEEDS and row.p == row.p else ABSENT
                for row in table.itertuples()
            ],
            "verdict": table.verdict,
        }
    )


def forest_plot(table: pd.DataFrame) -> MatplotlibFigure:
    """Draw a page's claims: a panel for each metric, with our and published differences.

    A difference that agrees with its claim lies right of 0, or left of 0 if lower is better.
    """
    from matplotlib.lines import Line2D

    drawn = table[table.ours.notna()]
    metrics = list(dict.fromkeys(drawn.metric))
    with styled():
        heights = [0.6 + 0.2 * (drawn.metric == metric).sum() for metric in metrics]
        figure = new_figure(9.0, sum(heights) + 0.3 * len(heights) + 0.5)
        panels = figure.subplots(len(metrics), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, metric in zip(panels, metrics, strict=True):
            group = drawn[drawn.metric == metric]
            for at, row in enumerate(group.itertuples()):
                color = COLORS[VERDICTS[row.verdict]]
                axes.plot([row.low, row.high], [at, at], color=color)
                axes.plot(row.ours, at, "s", color=color, markersize=4)
                axes.plot(row.published, at, "|", color=COLORS[3], markersize=9)
            axes.axvline(0.0, color=COLORS[6], linewidth=0.8)
            named = group.study + " · " + group.claim if table.study.nunique() > 1 else group.claim
            axes.set_yticks(range(len(group)), named)
            axes.set_ylim(len(group) - 0.5, -0.5)
            axes.set_title(f"{metric}: difference, with its {CONFIDENCE:.0%} interval")
        handles = [Line2D([], [], color=COLORS[i], marker="s") for i in VERDICTS.values()]
        handles.append(Line2D([], [], color=COLORS[3], marker="|", linestyle="none"))
        figure.legend(handles, [*VERDICTS, "published"], loc="outside lower center", ncols=6)
        return figure
