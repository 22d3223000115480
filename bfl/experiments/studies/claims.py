"""Claims: rankings of two lines that a study's file declares, and a study's report.

There is one test: the exact paired sign-flip test over the seeds, two-sided, with Holm's correction
over the claims of the study's file. They are declared before the runs, so neither the page nor the
results change the test. With n seeds its least p-value is 2 / 2^n; a study whose seeds cannot carry
its claims is refused before its runs, and where there are runs already, its claims are open.

Sources:
    Fisher (1935), "The design of experiments", Section 21; Holm (1979), "A simple sequentially
    rejective multiple test procedure".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.errors import ConfigurationError, DataError
from bfl.experiments.results.environment import describe_times
from bfl.experiments.results.figures import style
from bfl.experiments.results.report import Section, page
from bfl.experiments.results.table import ABSENT, markdown_table
from bfl.experiments.studies import results
from bfl.experiments.studies.figures import drawings
from bfl.experiments.studies.study import SEED, Choice, Claim, Study
from bfl.experiments.studies.table import StudyTable, as_text, markdown, number_as_text, study_table
from bfl.texts import counted

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as MatplotlibFigure


LEVEL = 0.05  # the family-wise error rate of a study's claims

MOST_FLIPS = 2**17
"""The most sign flips of a test; with more seeds, so many are drawn with a fixed seed."""

CONFIDENCE = 0.95  # the confidence level of a difference's interval

VERDICTS = {"found": 0, "contradicted": 1, "open": 6}
"""The verdicts, with the index of their colour in a forest plot."""

AFTERWARDS = "declared after the runs"

Sides = npt.NDArray[np.float64]


def seeds_that_carry(claims: int) -> int:
    """Return the least number of seeds with which one of so many claims can be found.

    Example:
        >>> seeds_that_carry(1), seeds_that_carry(6), seeds_that_carry(25)
        (6, 8, 10)
    """
    return next(n for n in count(1) if 2 * claims <= LEVEL * 2**n)


def check_seeds(study: Study) -> None:
    """Raise ConfigurationError if a study's seeds cannot carry its claims, with how many can."""
    if problem := _too_few(study.tested_claims(), len(study.axes.get(SEED, ("",)))):
        raise ConfigurationError(
            f"claims of {study.source}: {problem}; give the axis 'seed' as many, declare fewer "
            "claims, or mark those that need no test with beforehand = false"
        )


def _too_few(tested: int, seeds: int) -> str:
    if not tested or seeds >= (needed := seeds_that_carry(tested)):
        return ""
    return f"{counted(seeds, 'seed')} cannot carry {counted(tested, 'claim')}; {needed} can"


def claims(studies: Mapping[str, StudyTable]) -> pd.DataFrame:
    """Return the claims of some studies, a row each; those of a study are tested together.

    Returns:
        Columns ``study``, ``metric`` and ``claim``; ``published``, ``ours``, ``low`` and ``high``:
        the difference "better − worse" in the column's unit with its t interval over the seeds;
        ``p``, after Holm's correction; ``seeds``, ``verdict``, and ``reason`` where a claim is open
        whatever its runs say.
    """
    import pandas as pd

    found: list[dict[str, Any]] = []
    for name, table in studies.items():
        rows, tested = list(_rows(table)), table.study.tested_claims()
        family = [row for row in rows if row["beforehand"]]
        raw = [p_value(row["differences"]) for row in family]
        for row, p in zip(family, holm(raw, tested), strict=True):
            row["p"] = p
        for row in rows:
            reason = _too_few(tested, row["seeds"]) if row["beforehand"] else AFTERWARDS
            row |= {"study": name, "verdict": "open", "reason": reason}
            if not reason and row["p"] <= LEVEL:
                row["verdict"] = "found" if row["differences"].mean() > 0 else "contradicted"
        found += rows
    columns = ("study", "metric", "claim", "published", "ours", "low", "high", "p", "seeds")
    return pd.DataFrame(found, columns=[*columns, "verdict", "reason"])


def holm(p_values: Iterable[float], claims: int) -> Sides:
    """Return p-values, corrected by Holm's procedure for a family of so many claims, or more.

    Example:
        >>> holm([0.01, 0.04, 0.03], 3).round(2).tolist()
        [0.03, 0.06, 0.06]
    """
    raw = np.array(list(p_values), np.float64)
    rising = np.argsort(raw, kind="stable")
    corrected = np.maximum.accumulate((claims - np.arange(raw.size)) * raw[rising])
    raw[rising] = np.minimum(corrected, 1.0)
    return raw


def p_value(differences: Sides) -> float:
    """Return the two-sided p-value of the exact sign-flip test that the mean difference is 0.

    Example:
        >>> p_value(np.array([1.0, 2, 3, 4, 5, 6])) == 2 / 2**6
        True
    """
    from scipy import stats

    if len(differences) < 2 or not differences.any():
        return 1.0
    exact = 2 ** len(differences) <= MOST_FLIPS
    test = stats.permutation_test(
        (differences,),
        lambda flipped, axis: flipped.sum(axis=axis),
        permutation_type="samples",
        n_resamples=np.inf if exact else MOST_FLIPS,
        vectorized=True,
        rng=None if exact else 0,
    )
    return float(test.pvalue)


def _rows(table: StudyTable) -> Iterable[dict[str, Any]]:
    study, frame, cells = table.study, table.results.frame, table.study.cells()
    by_metric = {column.metric: column for column in study.columns}

    def are_comparable(pair: tuple[str, str]) -> bool:
        """Return whether two runs have the same partition and test images, if both are known."""
        known = [frame.loc[list(pair), name] for name in ("partition-sha256", "test-sha256")]
        return all(mine == theirs for mine, theirs in known if mine and theirs)

    for claim in sorted(study.claims, key=lambda each: list(by_metric).index(each.metric)):
        column = by_metric[claim.metric]
        last = by_metric.get(claim.than, column)
        ours, theirs = (table.results.numbers(each.metric) for each in (column, last))
        for better, worse in claim.pairs(cells):
            one, other = table.seeds(better), table.seeds(worse)
            pairs = [(one[seed], other[seed]) for seed in one if seed in other]
            pairs = list(filter(are_comparable, pairs))
            made = [[frame.loc[name].get("made-as") or name for name in pair] for pair in pairs]
            same = all(a == b for a, b in made)
            if not (one and other) or (pairs and same and last is column):
                continue  # nothing to compare, or one computation
            # Rounded, so that ties stay ties: curves have fewer digits than final metrics, and
            # shares differ in their last bits.
            found = [
                (
                    results.rounded(column.scale * results.rounded(ours[a])),
                    results.rounded(last.scale * results.rounded(theirs[b])),
                )
                for a, b in pairs
                if a in ours and b in theirs
            ]
            both = np.array(found, np.float64).reshape(-1, 2).T
            sign = 1.0 if column.higher_is_better else -1.0
            published = claim.published
            if published is None and study.published is not None:
                first, second = (
                    study.published.entry(c.key, column.metric)[0] for c in (better, worse)
                )
                published = None if first is None or second is None else first - second
            yield {
                "metric": column.heading,
                "claim": _in_words(cells, claim, better, worse, last.heading),
                "published": np.nan if published is None else published,
                **dict(zip(("low", "ours", "high"), _interval(both), strict=True)),
                "p": np.nan,
                "seeds": both.shape[1],
                "differences": _differences(sign * both),
                "beforehand": claim.beforehand,
            }


def _differences(sides: Sides) -> Sides:
    """Return the pairs' differences (n,); one that is not finite counts as the furthest other."""
    sides = np.where(np.isfinite(sides), sides, -np.inf)
    with np.errstate(invalid="ignore"):
        differences = np.nan_to_num(sides[0] - sides[1], posinf=np.inf, neginf=-np.inf)
    finite = np.abs(differences[np.isfinite(differences)])
    furthest = float(finite.max(initial=0.0)) or 1.0
    clipped: Sides = np.clip(differences, -furthest, furthest)
    return clipped


def _interval(both: Sides) -> tuple[float, float, float]:
    from scipy import stats

    if not both.size or not np.isfinite(both).all():
        return np.nan, np.nan, np.nan
    differences = both[0] - both[1]
    mean = float(differences.mean())
    if differences.size < 2 or not (error := stats.sem(differences)):
        return mean, mean, mean
    low, high = stats.t.interval(CONFIDENCE, differences.size - 1, loc=mean, scale=error)
    return float(low), mean, float(high)


def _in_words(
    cells: Sequence[Choice], claim: Claim, better: Choice, worse: Choice, than: str
) -> str:
    differing = [name for name in claim.worse if better.labels[name] != worse.labels[name]]
    one, other = (" ".join(map(c.label_with_column, differing)) for c in (better, worse))
    shared = [
        better.label_with_column(name)
        for name in better.labels
        if name not in differing and len({cell.labels[name] for cell in cells}) > 1
    ]
    what = f"> {than}" if claim.than else f"{one} > {other}"
    return f"{', '.join(shared)}: {what}" if shared else what


def claims_as_text(table: pd.DataFrame, decimals: Mapping[str, int]) -> pd.DataFrame:
    """Return a result of ``claims`` as text, with the decimals of each heading."""
    shown, digits = table.copy(), [decimals[metric] for metric in table.metric]
    for name in ("published", "ours", "low", "high"):
        numbers = zip(table[name], digits, strict=True)
        texts = [number_as_text(value, number, sign="+") for value, number in numbers]
        shown[name] = np.array(texts, object)  # without a claim they are no numbers either
    interval = shown.ours + " (" + shown.low + " to " + shown.high + ")"
    shown["ours (95 %)"] = shown.ours.where(table.ours.isna(), interval)
    shown["p"] = [ABSENT if np.isnan(p) else f"{p:.2g}" for p in table.p]
    return shown[["study", "claim", "metric", "published", "ours (95 %)", "seeds", "p", "verdict"]]


def claims_markdown(table: pd.DataFrame, decimals: Mapping[str, int]) -> str:
    """Return claims as Markdown: counts of verdicts, a row for each claim, why some are open."""
    import pandas as pd

    text = claims_as_text(table, decimals)
    counts = pd.crosstab(table.study, table.verdict).reindex(columns=VERDICTS, fill_value=0)
    if len(counts) == 1:
        text = text.drop(columns="study")
    every = markdown_table(text)
    if len(text) > 20:
        every = f"<details><summary>All {len(text)} claims</summary>\n\n{every}\n</details>\n"
    reasons = "".join(f"- {reason}\n" for reason in reasons_of_open(table))
    return "\n".join(filter(None, (markdown_table(counts.reset_index()), every, reasons)))


def reasons_of_open(table: pd.DataFrame) -> list[str]:
    """Return why claims are open whatever their runs say, a sentence for each study and reason."""
    several = table.study.nunique() > 1
    known = table[table.reason != ""]
    return [
        f"{f'{study}: ' if several else ''}open ({number}): {reason}"
        for (study, reason), number in known.groupby(["study", "reason"], sort=False).size().items()
    ]


def forest_plot(table: pd.DataFrame) -> MatplotlibFigure:
    """Draw our and the published differences of claims, a panel for each metric."""
    from matplotlib.lines import Line2D

    drawn = table[table.ours.notna()]
    metrics = list(dict.fromkeys(drawn.metric))
    with style.styled():
        heights = [0.6 + 0.2 * (drawn.metric == metric).sum() for metric in metrics]
        figure = style.new_figure(9.0, sum(heights) + 0.3 * len(heights) + 0.5)
        panels = figure.subplots(len(metrics), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, metric in zip(panels, metrics, strict=True):
            group = drawn[drawn.metric == metric]
            for at, row in enumerate(group.itertuples()):
                color = style.COLORS[VERDICTS[row.verdict]]
                axes.plot([row.low, row.high], [at, at], color=color)
                axes.plot(row.ours, at, "s", color=color, markersize=4)
                axes.plot(row.published, at, "|", color=style.COLORS[3], markersize=9)
            axes.axvline(0.0, color=style.COLORS[6], linewidth=0.8)
            names = group.study + " · " + group.claim if table.study.nunique() > 1 else group.claim
            axes.set_yticks(range(len(group)), names)
            axes.set_ylim(len(group) - 0.5, -0.5)
            axes.set_title(f"{metric}: difference, with its {CONFIDENCE:.0%} interval")
        handles = [Line2D([], [], color=style.COLORS[i], marker="s") for i in VERDICTS.values()]
        handles.append(Line2D([], [], color=style.COLORS[3], marker="|", linestyle="none"))
        figure.legend(handles, [*VERDICTS, "published"], loc="outside lower center", ncols=4)
        return figure


def decimals_of(*tables: StudyTable) -> dict[str, int]:
    """Return the decimals of the columns of some studies, by heading."""
    return {column.heading: column.decimals for table in tables for column in table.study.columns}


def with_claims(table: StudyTable) -> str:
    """Return a study's table and, if it has any, its claims as Markdown."""
    if not table.study.claims:
        return markdown(table)
    found = claims({table.study.name: table})
    return f"{markdown(table)}\n## Claims\n\n{claims_markdown(found, decimals_of(table))}"


def study_report(opened: results.OpenedStudy) -> str:
    """Return the report of a study's finished runs as one HTML page; DataError for no run."""
    table = study_table(opened)
    study, frame = table.study, table.results.frame
    if not len(frame):
        raise DataError(f"{opened.folder.path} has no finished run to report")
    sections = []
    tested = claims({study.name: table})
    if len(tested):
        rows = claims_as_text(tested, decimals_of(table)).drop(columns="study")
        caption = (
            "Difference of each claim's two lines, better − worse, in the column's unit, ours with "
            "its interval over the seeds, and the published one; above 0 is as claimed where "
            "higher is better, below 0 where lower is."
        )
        text = "Each claim is an order of two lines, tested together with all claims here."
        section = Section("Claims", [text, *reasons_of_open(tested)])
        section.draw("claims", forest_plot(tested), caption)
        sections.append(section.tabulate("Verdicts", rows.to_dict("records")))
    lines = as_text(table).to_dict("records")
    sections += [Section("Table", table.notes).tabulate("", lines), Section("Figures")]
    for name, figure, caption in drawings(opened):
        sections[-1].draw(name, figure, caption)
    base = [{"key": key, "value": str(value)} for key, value in study.base.items()]
    known = [name for name in results.VERSIONS if name in frame]
    versions = [{"": name, "value": ", ".join(dict.fromkeys(frame[name]))} for name in known]
    origin = Section("What was run").tabulate("Base: keys of all runs", base)
    sections.append(origin.tabulate("Versions and machines", versions, folded=True))
    seeds = frame[SEED].unique() if SEED in frame else [str(study.base.get(SEED, 0))]
    times = describe_times(frame.to_dict("records"))
    about = [f"{len(frame)} runs; seeds {', '.join(seeds)}", *times]
    return page(title=study.title, about=about, sections=sections)
