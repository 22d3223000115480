#!/usr/bin/env python
"""The page on the closing round: its table, its goals and its figure, from committed results.

    python scripts/closing_page.py            # prints what is committed
    python scripts/closing_page.py --write    # writes page and figure from docs/results/closing-*

The runs are those of ``configs/closing/``, put here by ``bfl study merge``; the price is that of
``scripts/closing_price.py``.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from bfl.closing import Closing
from bfl.closing.bayesian_head import BayesianHead
from bfl.closing.curvature import Form
from bfl.closing.feature_density import FeatureDensity
from bfl.experiments.results.table import section_written

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results" / "closing.md"
FOLDER = PAGE.with_suffix("")
PRICE, FIGURE = FOLDER / "price.json", FOLDER / "accuracy-and-auroc.png"
STUDIES = ("closing-digits", "closing-fashion-mnist")
MASKED, TRIED = "closing-digits-masked", ("closing-digits-tried", "closing-fashion-mnist-tried")

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
METRICS = ("accuracy", "negative-log-likelihood", "expected-calibration-error")

Key = tuple[str, str, int, str]
"""Data set, partition, rounds, method."""


@dataclass(frozen=True)
class Line:
    """The runs of a line, which differ in their seed."""

    key: Key
    runs: Mapping[int, Mapping[str, float]]

    def mean(self, name: str) -> float:
        """Return the mean of a number over the seeds."""
        return fmean(run[name] for run in self.runs.values())

    @property
    def told(self) -> str:
        """The line in words."""
        data, partition, rounds, method = self.key
        return f"{data}, {partition}, {rounds} rounds, {method}"


def lines(study: str) -> list[Line]:
    """Return the lines of a study's committed results, in the order of its file."""
    from bfl.experiments.studies.folder import StudyFolder

    found: dict[Key, dict[int, Mapping[str, float]]] = {}
    for _, result in sorted(StudyFolder(PAGE.parent / study).results().items()):
        keys = result.configuration
        key = (keys["dataset"], PARTITIONS[keys["partition"]], keys["rounds"], _method(study, keys))
        found.setdefault(key, {})[keys["seed"]] = result.metrics
    orders = [list(PARTITIONS.values()), [*METHODS.values(), *OTHERS, *DENSITIES, *CURVATURES]]
    ordered = sorted(
        found, key=lambda key: (key[0], orders[0].index(key[1]), key[2], orders[1].index(key[3]))
    )
    return [Line(key, found[key]) for key in ordered]


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


# ------------------------------------------------------------------------------- the table


def table(found: Sequence[Line], price: Mapping[str, float]) -> list[str]:
    """Return the lines of the page's table: without and with the closing, means over seeds."""
    heads = ["data", "partition", "rounds", "method", "seeds", "accuracy (%)", "NLL", "ECE"]
    heads += ["AUROC far", "AUROC near", "price"]
    rows = [f"| {' | '.join(heads)} |", f"| {' | '.join(['---'] * 4 + ['---:'] * 7)} |"]
    for line in found:
        data, partition, rounds, method = line.key
        cells = [data, partition, str(rounds), method, str(len(line.runs))]
        for name, form, scale in zip(METRICS, (".1f", ".3f", ".3f"), (100, 1, 1), strict=True):
            cells.append(_arrow(line, f"{BEFORE}{name}", name, form, scale))
        cells.append(", ".join(_area(line, source) for source in FAR[data]))
        cells.append(_area(line, NEAR))
        cells.append(f"{price[method]:.2f} → {price[method] + price['closing']:.2f}")
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def _arrow(line: Line, before: str, after: str, form: str, scale: float = 1.0) -> str:
    first, second = (format(scale * line.mean(name), form) for name in (before, after))
    return f"{first} → {second}"


def _area(line: Line, source: str) -> str:
    return _arrow(line, f"ood-{source}-{ENTROPY}-auroc", f"ood-{source}-{DENSITY}-auroc", ".3f")


# ------------------------------------------------------------------------------- the goals


def gains(line: Line, name: str, against: Line) -> list[float]:
    """Return a number of a closed line minus that of another without closing, by common seed."""
    return [
        run[name] - against.runs[seed][f"{BEFORE}{name}"]
        for seed, run in line.runs.items()
        if seed in against.runs
    ]


def goals(found: Sequence[Line], price: Mapping[str, float]) -> list[str]:
    """Return the lines of the goals' table: how many lines meet one, and who misses it most."""
    averaging = {line.key[:3]: line for line in found if line.key[3] == "FedAvg"}
    accuracy, likelihood, calibration = METRICS

    def gain(name: str) -> Callable[[Line], float]:
        return lambda line: fmean(gains(line, name, averaging[line.key[:3]]))

    def foreign(source: str, what: str) -> Callable[[Line], float]:
        return lambda line: line.mean(f"ood-{source}-{DENSITY}-{what}")

    def kept(name: str) -> Callable[[Line], float]:
        """Return the gain over the line's own network where clients hold two classes each."""
        return lambda line: fmean(gains(line, name, line)) if "2-class" in line.key else math.nan

    shared = (
        ("accuracy minus FedAvg's ≥ 0", gain(accuracy), 1, 0.0),
        ("NLL minus FedAvg's ≤ -0.02", gain(likelihood), -1, -0.02),
        ("ECE ≤ 0.02", lambda line: line.mean(calibration), -1, 0.02),
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
        own = [line for line in found if line.key[0] == data and line.key[:3] in averaging]
        for name, value, sign, bound in (*shared, *far[data]) if own else ():
            values = {line.told: each for line in own if not math.isnan(each := value(line))}
            met = sum(sign * (each - bound) >= -1e-12 for each in values.values())
            worst = min(values, key=lambda told: sign * values[told])
            cells = (data, name, f"{met} of {len(values)}", worst.partition(", ")[2])
            rows.append(f"| {' | '.join(cells)} | {values[worst]:.3f} |")
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


def curvatures(others: Sequence[Line], price: Mapping[str, Any]) -> list[str]:
    """Return the lines of the table of the four curvatures, with FedAvg, over common seeds."""
    heads = ["partition", "curvature", "seeds", "accuracy (%)", "NLL", "ECE", "rounds of sums"]
    heads += ["numbers, of ResNet-8's", "CPU ms a round"]
    rows = [f"| {' | '.join(heads)} |", f"| {' | '.join(['---'] * 2 + ['---:'] * 7)} |"]
    lines_ = {line.key: line for line in others if line.key[3] in CURVATURES}
    for partition in PARTITIONS.values():
        own = {key[3]: line for key, line in lines_.items() if key[1] == partition}
        key = ("digits", partition, 20, DENSITIES[0])
        own["blocks"] = next(x for x in others if x.key == key)
        told = [{n for n, run in x.runs.items() if MADE in run} for x in own.values()]
        seeds = sorted(set.intersection(*told))
        for form in CURVATURES if len(own) == len(CURVATURES) and seeds else ():
            line = Line(own[form].key, {seed: own[form].runs[seed] for seed in seeds})
            accuracy, *rest = (line.mean(metric) for metric in METRICS)
            cells = [partition, form, str(len(seeds)), f"{100 * accuracy:.1f}"]
            cells += [f"{value:.3f}" for value in rest]
            cells += [
                rounds_of_sums(line),
                f"{message_share(BayesianHead(head_curvature=form)):.2f}",
                f"{1000 * price['curvatures'][form]:.0f}",
            ]
            rows.append(f"| {' | '.join(cells)} |")
    return rows


def training(found: Sequence[Line]) -> list[str]:
    """Return the lines of the table of what the closing gains, by rounds of training."""
    heads = ["data", "partition", "method", "rounds", "accuracy (points)", "NLL"]
    heads += ["seeds of lower NLL", "rounds of sums", "mean epistemic part"]
    rows = [f"| {' | '.join(heads)} |", f"| {' | '.join(['---'] * 3 + ['---:'] * 6)} |"]
    for line in found:
        data, partition, rounds, method = line.key
        points, nats = (gains(line, name, line) for name in METRICS[:2])
        cells = [data, partition, method, str(rounds), f"{100 * fmean(points):+.1f}"]
        cells += [f"{fmean(nats):+.3f}", f"{sum(each < -5e-4 for each in nats)} of {len(nats)}"]
        cells += [rounds_of_sums(line), f"{line.mean('mean-epistemic'):.2g}"]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def rounds_of_sums(line: Line) -> str:
    """Return the fewest and the most rounds of sums of a line's runs, where they are known."""
    made = [run[MADE] for run in line.runs.values() if MADE in run]
    return " to ".join(dict.fromkeys(f"{n:.0f}" for n in (min(made), max(made)))) if made else "–"


def tried(found: Sequence[Line], others: Sequence[Line]) -> list[str]:
    """Return the lines of the table of other closing rounds besides the default, with FedAvg."""
    rows = [
        "| partition | closing | seeds | accuracy (%) | NLL | ECE |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for line in (x for x in others if x.key[3] in OTHERS):
        default = next(x for x in found if x.key == (*line.key[:3], "FedAvg"))
        for name, each in (("the default", default), (line.key[3], line)):
            accuracy, *rest = (each.mean(metric) for metric in METRICS)
            cells = [line.key[1], name, str(len(each.runs)), f"{100 * accuracy:.1f}"]
            row = f"| {' | '.join([*cells, *(f'{value:.3f}' for value in rest)])} |"
            if row not in rows:
                rows.append(row)
    return rows


def stages(found: Sequence[Line], others: Sequence[Line]) -> list[str]:
    """Return the lines of the table of what the density of features sees, with FedAvg."""
    heads = ["data", "partition", "features of", "AUROC far", f"AUROC near ({NEAR})"]
    heads += ["seeds above in all", "largest message, of ResNet-8's"]
    rows = [f"| {' | '.join(heads)} |", f"| {' | '.join(['---'] * 3 + ['---:'] * 4)} |"]
    # Sums of the last layer and of stages have a round each.
    last_only = FeatureDensity(density_features="last")
    shares = message_share(BayesianHead(), last_only), message_share(FeatureDensity())
    for line in (x for x in others if x.key[3] in DENSITIES):
        default = next(x for x in found if x.key == (*line.key[:3], "FedAvg"))
        last, every = (line, default) if line.key[3] == DENSITIES[0] else (default, line)
        far = [f"ood-{source}-{DENSITY}-auroc" for source in FAR[line.key[0]]]
        names = [*far, f"ood-{NEAR}-{DENSITY}-auroc"]
        above = sum(all(run[n] > last.runs[s][n] for n in names) for s, run in every.runs.items())
        counts = ("", f"{above} of {len(line.runs)}")
        for what, each, count, share in zip(
            ("last", "stages"), (last, every), counts, shares, strict=True
        ):
            *means, near = [f"{each.mean(name):.3f}" for name in names]
            cells = [*line.key[:2], what, ", ".join(means), near, count]
            rows.append(f"| {' | '.join(cells)} | {share:.2f} |")
    return rows


def masked(direct: Sequence[Line], hidden: Sequence[Line]) -> list[str]:
    """Return how far runs whose updates and sums are masked are from those whose are not."""
    other = {line.key: line for line in direct}
    names = [
        *(f"{BEFORE}{name}" for name in METRICS),
        *METRICS,
        *(f"ood-{source}-{DENSITY}-auroc" for source in (*FAR["digits"], NEAR)),
    ]
    apart = {
        name: [
            abs(run[name] - other[line.key].runs[seed][name])
            for line in hidden
            if line.key in other
            for seed, run in line.runs.items()
        ]
        for name in names
    }
    rows = [f"| largest difference of {len(apart[names[0]])} runs | |", "| --- | ---: |"]
    return rows + [f"| {name} | {max(values):.4f} |" for name, values in apart.items() if values]


# ------------------------------------------------------------------------------- the figure


def draw(found: Sequence[Line], price: Mapping[str, float]) -> None:
    """Draw accuracy against AUROC of near images, without and with the closing."""
    from bfl.experiments.results.figures.style import COLORS, new_figure, styled

    shown = [line for line in found if line.key[2] == 20]
    panels = list(dict.fromkeys(line.key[:2] for line in shown))
    with styled():
        high = -(-len(panels) // 3)
        figure = new_figure(8.4, 0.6 + 2.7 * high)
        grid = figure.subplots(high, 3, squeeze=False).ravel()
        for axes, panel in zip(grid, panels, strict=False):
            for color, method in zip(COLORS, METHODS.values(), strict=False):
                for line in (x for x in shown if (*x.key[:2], x.key[3]) == (*panel, method)):
                    _draw_line(axes, line, price, color)
            axes.set_title(", ".join(panel))
            axes.set_xlabel("accuracy (%)")
            axes.set_ylabel("AUROC, rotated")
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
        FOLDER.mkdir(exist_ok=True)
        figure.savefig(FIGURE, dpi=120, metadata={"Software": None})


def _draw_line(axes: Any, line: Line, price: Mapping[str, float], color: str) -> None:
    method = line.key[3]
    accuracy = [100 * line.mean(name) for name in (f"{BEFORE}accuracy", "accuracy")]
    areas = [line.mean(f"ood-{NEAR}-{by}-auroc") for by in (ENTROPY, DENSITY)]
    sizes = [40 * price[method], 40 * (price[method] + price["closing"])]
    axes.plot(accuracy, areas, color=color, linewidth=0.8)
    axes.scatter(accuracy[0], areas[0], sizes[0], facecolors="white", edgecolors=color, zorder=3)
    axes.scatter(accuracy[1], areas[1], sizes[1], color=color, zorder=3, label=method)


# --------------------------------------------------------------------------------- the page


def sections() -> dict[str, list[str]]:
    """Return the lines of the page's sections, by name."""
    price = json.loads(PRICE.read_text(encoding="utf-8"))
    found, others = ([x for study in s for x in lines(study)] for s in (STUDIES, TRIED))
    return {
        "table": table(found, price),
        "goals": goals(found, price),
        "training": training([x for x in found if x.key[3] in ("FedAvg", "WS", "NWA")]),
        "tried": tried(found, others),
        "stages": stages(found, others),
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
        draw([line for study in STUDIES for line in lines(study)], price)
        PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), written), encoding="utf-8")
    print("\n".join(line for content in written.values() for line in ["", *content]))


if __name__ == "__main__":
    main()
