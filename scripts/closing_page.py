#!/usr/bin/env python
"""The page on the closing round: its table, its goals and its figure, from committed results.

    python scripts/closing_page.py            # prints what is committed
    python scripts/closing_page.py --write    # writes page and figure from docs/results/closing-*

The runs are those of ``configs/closing/``; the price is that of
``scripts/closing_price.py``.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from bfl.closing import Closing
from bfl.closing.bayesian_head import BY_HEART, SHIFT_GAP, BayesianHead
from bfl.closing.curvature import Form
from bfl.closing.feature_density import FeatureDensity
from bfl.experiments.results.table import markdown_table, section_written

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results" / "closing.md"
FOLDER = PAGE.with_suffix("")
PRICE, FIGURE = FOLDER / "price.json", FOLDER / "accuracy-and-auroc.png"
STUDIES = ("closing-digits", "closing-fashion-mnist")
MASKED, TRIED = "closing-digits-masked", ("closing-digits-tried", "closing-fashion-mnist-tried")
SHIFTED, AUTO = "closing-fashion-mnist-shifted", "closing-fashion-mnist-auto"

METHODS = {
    "federated-averaging": "FedAvg",
    "weighted-sum-of-normals": "WS",
    "naive-weighted-averaging": "NWA",
    "conflation": "conflation",
}
OTHERS = ("prior at 0", "temperature")
"""Further closing rounds tried with FedAvg."""

DENSITIES = ("density of last", "density of stages")
"""Lines with a density of other features than those of the study beside it."""

CURVATURES: tuple[Form, ...] = ("full", "blocks", "kronecker", "bound")
FEATURES, CLASSES, PARAMETERS = 64, 10, 75_722
STAGE_WIDTHS = (16, 32)
"""Width in and out of ResNet-8's last layer, and the numbers in a message of its points; and what
the convolutions take that widen it."""

PARTITIONS = {"iid": "IID", "dirichlet": "Dirichlet 0.5", "shards": "2-class"}
FAR = {"digits": ("inverted", "noised"), "fashion-mnist": ("mnist",)}
NEAR = "rotated"
BEFORE, MADE = "before-closing-", "closing-rounds-made"
ENTROPY, DENSITY = f"{BEFORE}predictive-entropy", "feature-density"
SEED = "seed"
METRICS = ("accuracy", "negative-log-likelihood", "expected-calibration-error")

Key = tuple[str, str, int, str]
"""A line: data set, partition, rounds, method."""

Lines = Mapping[Key, pd.DataFrame]
"""The metrics of each line's runs, by seed."""


def lines(study: str) -> dict[Key, pd.DataFrame]:
    """Return the lines of a study's committed results, in the order of the page."""
    import bfl
    from bfl.configuration import expanded

    partitions = list(PARTITIONS.values())
    methods = [*METHODS.values(), *OTHERS, *DENSITIES, *CURVATURES]
    rows = []
    table = bfl.study(PAGE.parent / study, results=["none"])
    for run in table.study.runs:
        if run.name not in table.results.frame.index:
            continue
        keys = expanded(run.values)
        method = methods.index(_method(study, keys))
        line = (keys["dataset"], list(PARTITIONS).index(keys["partition"]), keys["rounds"], method)
        numbers = table.results.frame.loc[run.name].drop(SEED)
        rows.append({"line": line, SEED: keys[SEED], **numbers})
    frame = pd.DataFrame(rows).set_index(SEED)
    return {
        (data, partitions[partition], rounds, methods[method]): runs
        for (data, partition, rounds, method), runs in frame.groupby("line")
    }


def _method(study: str, keys: Mapping[str, Any]) -> str:
    if "temperature" in keys["closing"]:
        return "temperature"
    if keys["head-prior"] == "zero":
        return "prior at 0"
    if keys["head-curvature"] != "blocks":
        return str(keys["head-curvature"])
    if study in TRIED:
        return f"density of {keys['density-features']}"
    return "FedAvg" if keys["inference"] == "deterministic" else METHODS[keys["strategy"]]


def tabled(heads: str, rows: Iterable[Sequence[Any]], numbers: int) -> list[str]:
    """Return the lines of a table, whose last ``numbers`` columns are aligned right."""
    frame = pd.DataFrame(rows, columns=heads.split("; "), dtype=object).drop_duplicates()
    return markdown_table(frame, numbers).splitlines()


# ------------------------------------------------------------------------------- the table


def table(found: Lines, price: Mapping[str, float]) -> list[str]:
    """Return the lines of the page's table: without and with the closing, means over seeds."""
    heads = "data; partition; rounds; method; seeds; accuracy (%); NLL; ECE; "
    heads += "AUROC far; AUROC near; price"
    rows = []
    for (data, partition, rounds, method), runs in found.items():
        cells = [data, partition, rounds, method, len(runs)]
        for name, form, scale in zip(METRICS, (".1f", ".3f", ".3f"), (100, 1, 1), strict=True):
            cells.append(_arrow(runs, f"{BEFORE}{name}", name, form, scale))
        cells.append(", ".join(_area(runs, source) for source in FAR[data]))
        cells.append(_area(runs, NEAR))
        cells.append(f"{price[method]:.2f} → {price[method] + price['closing']:.2f}")
        rows.append(cells)
    return tabled(heads, rows, 7)


def _arrow(runs: pd.DataFrame, before: str, after: str, form: str, scale: float = 1.0) -> str:
    first, second = (format(scale * fmean(runs[name]), form) for name in (before, after))
    return f"{first} → {second}"


def _area(runs: pd.DataFrame, source: str) -> str:
    return _arrow(runs, f"ood-{source}-{ENTROPY}-auroc", f"ood-{source}-{DENSITY}-auroc", ".3f")


# ------------------------------------------------------------------------------- the goals


def gains(runs: pd.DataFrame, name: str, against: pd.DataFrame) -> pd.Series:
    """Return a number of a closed line minus that of another without closing, by common seed."""
    return (runs[name] - against[f"{BEFORE}{name}"]).dropna()


def goals(found: Lines, price: Mapping[str, float]) -> list[str]:
    """Return the lines of the goals' table: how many lines meet one, and who misses it most."""
    accuracy, likelihood, calibration = METRICS

    def gain(name: str) -> Callable[[Key], float]:
        return lambda key: fmean(gains(found[key], name, found[(*key[:3], "FedAvg")]))

    def foreign(source: str, what: str) -> Callable[[Key], float]:
        return lambda key: fmean(found[key][f"ood-{source}-{DENSITY}-{what}"])

    def kept(name: str) -> Callable[[Key], float]:
        """Return the gain over the line's own network where clients hold two classes each."""
        return lambda key: (
            fmean(gains(found[key], name, found[key])) if "2-class" in key else math.nan
        )

    shared = (
        ("accuracy minus FedAvg's ≥ 0", gain(accuracy), 1, 0.0),
        ("NLL minus FedAvg's ≤ -0.02", gain(likelihood), -1, -0.02),
        ("ECE ≤ 0.02", lambda key: fmean(found[key][calibration]), -1, 0.02),
        (f"AUROC near ({NEAR}) ≥ 0.90", foreign(NEAR, "auroc"), 1, 0.9),
        ("2-class: accuracy minus the method's own ≥ 0", kept(accuracy), 1, 0.0),
        ("2-class: NLL minus the method's own ≤ 0", kept(likelihood), -1, 0.0),
    )
    far = {
        data: [
            goal
            for source in sources
            for goal in (
                (f"AUROC far ({source}) ≥ 0.97", foreign(source, "auroc"), 1, 0.97),
                (f"FPR95 far ({source}) ≤ 0.06", foreign(source, "fpr95"), -1, 0.06),
            )
        ]
        for data, sources in FAR.items()
    }
    rows = [
        "| data | goal | lines that meet it | farthest from it | there |",
        "| --- | --- | ---: | --- | ---: |",
    ]
    for data in FAR:
        own = [key for key in found if key[0] == data and (*key[:3], "FedAvg") in found]
        for name, value, sign, bound in (*shared, *far[data]) if own else ():
            values = {key: each for key in own if not math.isnan(each := value(key))}
            met = sum(sign * (each - bound) >= -1e-12 for each in values.values())
            worst = min(values, key=lambda key: sign * values[key])
            farthest = f"{worst[1]}, {worst[2]} rounds, {worst[3]}"
            told = f"{met} of {len(values)}", farthest, f"{values[worst]:.3f}"
            rows.append(f"| {data} | {name} | {' | '.join(told)} |")
    once = (
        ("closing's computation ≤ 0.05 of FedAvg's", 0.05, price["closing"]),
        ("largest message of a closing ≤ 0.6 of ResNet-8's", 0.6, message_share(FeatureDensity())),
    )
    for name, bound, value in once:
        rows.append(f"| all | {name} | {'all' if value <= bound else 'none'} | | {value:.3f} |")
    return rows


def message_share(*chain: Closing) -> float:
    """Return the length of a client's sums in a round, as a share of a message of ResNet-8."""
    from bfl.closing.chain import length

    return length(chain, FEATURES, CLASSES, STAGE_WIDTHS) / PARAMETERS


def curvatures(others: Lines, price: Mapping[str, Any]) -> list[str]:
    """Return the lines of the table of the four curvatures, with FedAvg, over common seeds."""
    rows = []
    for partition in PARTITIONS.values():
        methods = {form: form for form in CURVATURES} | {"blocks": DENSITIES[0]}
        keys = {form: ("digits", partition, 20, method) for form, method in methods.items()}
        if not all(key in others for key in keys.values()):
            continue
        told = [others[key][MADE].dropna().index for key in keys.values()]
        seeds = reduce(pd.Index.intersection, told)
        for form in CURVATURES if len(seeds) else ():
            runs = others[keys[form]].loc[seeds]
            share = message_share(BayesianHead(head_curvature=form))
            cells = [partition, form, len(seeds), *_of_predictions(runs), rounds_of_sums(runs)]
            rows.append([*cells, f"{share:.2f}", f"{1000 * price['curvatures'][form]:.0f}"])
    heads = "partition; curvature; seeds; accuracy (%); NLL; ECE; rounds of sums; "
    return tabled(f"{heads}numbers, of ResNet-8's; CPU ms a round", rows, 7)


def _of_predictions(runs: pd.DataFrame) -> list[str]:
    """Return the cells of a line's accuracy in percent, NLL and ECE."""
    accuracy, likelihood, calibration = (fmean(runs[metric]) for metric in METRICS)
    return [f"{100 * accuracy:.1f}", f"{likelihood:.3f}", f"{calibration:.3f}"]


def training(found: Lines) -> list[str]:
    """Return the lines of the table of what the closing gains, by rounds of training."""
    rows = []
    for (data, partition, rounds, method), runs in found.items():
        points, nats = (gains(runs, name, runs) for name in METRICS[:2])
        cells = [data, partition, method, rounds, f"{100 * fmean(points):+.1f}"]
        cells += [f"{fmean(nats):+.3f}", f"{(nats < -5e-4).sum()} of {len(nats)}"]
        rows.append([*cells, rounds_of_sums(runs), f"{fmean(runs['mean-epistemic']):.2g}"])
    heads = "data; partition; method; rounds; accuracy (points); NLL; seeds of lower NLL; "
    return tabled(f"{heads}rounds of sums; mean epistemic part", rows, 6)


def rounds_of_sums(runs: pd.DataFrame) -> str:
    """Return the fewest and the most rounds of sums of a line's runs, where they are known."""
    made = runs.get(MADE, pd.Series(dtype=float)).dropna()
    ends = [f"{number:.0f}" for number in (made.min(), made.max())] if len(made) else ["–"]
    return " to ".join(dict.fromkeys(ends))


def tried(found: Lines, others: Lines) -> list[str]:
    """Return the lines of the table of other closing rounds besides the default, with FedAvg."""
    rows = []
    for key in (key for key in others if key[3] in OTHERS):
        compared = {"the default": found[(*key[:3], "FedAvg")], key[3]: others[key]}
        for name, runs in compared.items():
            rows.append([key[1], name, len(runs), *_of_predictions(runs)])
    return tabled("partition; closing; seeds; accuracy (%); NLL; ECE", rows, 4)


def stages(found: Lines, others: Lines) -> list[str]:
    """Return the lines of the table of what the density of features sees, with FedAvg."""
    rows = []
    # Sums of the last layer and of stages have a round each.
    last_only = FeatureDensity(density_features="last")
    shares = message_share(BayesianHead(), last_only), message_share(FeatureDensity())
    for key, runs in others.items():
        if key[3] not in DENSITIES:
            continue
        default = found[(*key[:3], "FedAvg")]
        last, every = (runs, default) if key[3] == DENSITIES[0] else (default, runs)
        far = [f"ood-{source}-{DENSITY}-auroc" for source in FAR[key[0]]]
        names = [*far, f"ood-{NEAR}-{DENSITY}-auroc"]
        above = (every[names] > last[names].loc[every.index]).all(axis=1).sum()
        counts = ("", f"{above} of {len(runs)}")
        for what, each, count, share in zip(
            ("last", "stages"), (last, every), counts, shares, strict=True
        ):
            *means, near = [f"{fmean(each[name]):.3f}" for name in names]
            rows.append([*key[:2], what, ", ".join(means), near, count, f"{share:.2f}"])
    heads = f"data; partition; features of; AUROC far; AUROC near ({NEAR}); seeds above in all; "
    return tabled(f"{heads}largest message, of ResNet-8's", rows, 4)


def shifted(found: Lines, moved: Lines, auto: Lines) -> list[str]:
    """Return the lines of the table of a last layer fitted to shifted images, by common seeds."""
    rows = []
    for key, after in moved.items():
        before, gaps = found[key].loc[after.index], auto[key].loc[after.index, SHIFT_GAP]
        networks = before[[f"{BEFORE}{name}" for name in METRICS]].set_axis(METRICS, axis=1)
        numbers = zip(*map(_of_predictions, (networks, before, after)), strict=True)
        lower = (after[METRICS[1]] < before[METRICS[1]] - 5e-4).sum()
        cells = [*key[1:], len(after), *map(", ".join, numbers), f"{lower} of {len(after)}"]
        apart = [f"{gaps.min():.3f} to {gaps.max():.3f}", f"{(gaps > BY_HEART).sum()}"]
        rows.append([*cells, *apart])
    heads = "partition; rounds; method; seeds; accuracy (%); NLL; ECE; seeds of lower NLL, shifted"
    return tabled(f"{heads}; gap (nats); seeds that shift by `auto`", rows, 7)


def masked(direct: Lines, hidden: Lines) -> list[str]:
    """Return how far runs whose updates and sums are masked are from those whose are not."""
    names = [
        *(f"{BEFORE}{name}" for name in METRICS),
        *METRICS,
        *(f"ood-{source}-{DENSITY}-auroc" for source in (*FAR["digits"], NEAR)),
    ]
    pairs = [(runs[names], direct[key][names]) for key, runs in hidden.items() if key in direct]
    apart = pd.concat([(ours - theirs.loc[ours.index]).abs() for ours, theirs in pairs])
    rows = [f"| largest difference of {len(apart)} runs | |", "| --- | ---: |"]
    return rows + [f"| {name} | {value:.4f} |" for name, value in apart.max().items()]


# ------------------------------------------------------------------------------- the figure


def draw(found: Lines, price: Mapping[str, float]) -> None:
    """Draw accuracy against AUROC of near images, without and with the closing."""
    from bfl.experiments.results.figures.style import COLORS, new_figure, styled

    shown = {key: runs for key, runs in found.items() if key[2] == 20}
    panels = list(dict.fromkeys(key[:2] for key in shown))
    with styled():
        high = -(-len(panels) // 3)
        figure = new_figure(8.4, 0.6 + 2.7 * high)
        grid = figure.subplots(high, 3, squeeze=False).ravel()
        for axes, panel in zip(grid, panels, strict=False):
            for color, method in zip(COLORS, METHODS.values(), strict=False):
                if (key := (*panel, 20, method)) in shown:
                    _draw_line(axes, method, shown[key], price, color)
            axes.set_title(", ".join(panel))
            axes.set_xlabel("accuracy (%)")
            axes.set_ylabel("AUROC, rotated")
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
        FOLDER.mkdir(exist_ok=True)
        figure.savefig(FIGURE, dpi=120, metadata={"Software": None})


def _draw_line(
    axes: Any, method: str, runs: pd.DataFrame, price: Mapping[str, float], color: str
) -> None:
    accuracy = [100 * fmean(runs[name]) for name in (f"{BEFORE}accuracy", "accuracy")]
    areas = [fmean(runs[f"ood-{NEAR}-{by}-auroc"]) for by in (ENTROPY, DENSITY)]
    sizes = [40 * price[method], 40 * (price[method] + price["closing"])]
    axes.plot(accuracy, areas, color=color, linewidth=0.8)
    axes.scatter(accuracy[0], areas[0], sizes[0], facecolors="white", edgecolors=color, zorder=3)
    axes.scatter(accuracy[1], areas[1], sizes[1], color=color, zorder=3, label=method)


# --------------------------------------------------------------------------------- the page


def sections() -> dict[str, list[str]]:
    """Return the lines of the page's sections, by name."""
    price = json.loads(PRICE.read_text(encoding="utf-8"))
    found, others = (
        {key: runs for study in studies for key, runs in lines(study).items()}
        for studies in (STUDIES, TRIED)
    )
    averaged, auto = ("FedAvg", "WS", "NWA"), lines(AUTO)
    default = found | auto
    return {
        "table": table(default, price),
        "goals": goals(default, price),
        "training": training({key: runs for key, runs in default.items() if key[3] in averaged}),
        "tried": tried(found, others),
        "stages": stages(found, others),
        "shifted": shifted(found, lines(SHIFTED), auto),
        "curvatures": curvatures(others, price),
        "masked": masked(found, lines(MASKED)),
    }


def page_with(text: str, written: Mapping[str, Iterable[str]]) -> str:
    """Return the page's text with its sections written anew."""
    for name, content in written.items():
        text = section_written(text, name, content)
    return text


def main() -> None:
    """Print the committed numbers, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="writes figure and page")
    given = parser.parse_args()
    written = sections()
    if given.write:
        price = json.loads(PRICE.read_text(encoding="utf-8"))
        draw({key: runs for study in STUDIES for key, runs in lines(study).items()}, price)
        PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), written), encoding="utf-8")
    print("\n".join(line for content in written.values() for line in ["", *content]))


if __name__ == "__main__":
    main()
