"""Figures of a study: rows overlaid, with bands of their spread over seeds, a panel a partition."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.evaluation.evaluated_ensemble import ENSEMBLE
from bfl.evaluation.regression import ERROR
from bfl.experiments.results.clients import CLIENTS
from bfl.experiments.results.figures import style
from bfl.experiments.studies.columns import (
    KINDS,
    Column,
    Figure,
    default_figures,
    retained_at,
)
from bfl.experiments.studies.results import PERCENTS, OpenedStudy
from bfl.experiments.studies.study import Choice, Run
from bfl.experiments.studies.table import mean_and_spread

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

MARKERS = ("o", "s", "D", "^", "v", "P")  # markers of different numbers in one panel

UNITS = {
    "accuracy": "%",
    "negative-log-likelihood": "nats",
    ERROR: "the target's unit",
    "continuous-ranked-probability-score": "the target's unit",
}
"""Units of numbers whose names end so."""


@dataclass(frozen=True)
class Overlay:
    """A study's rows, overlaid in a panel for each combination of all axes except the seeds."""

    opened: OpenedStudy
    figure: Figure

    @cached_property
    def rows(self) -> list[Choice]:
        """The rows to draw."""
        return [row for row in self.opened.study.rows if self.figure.shows(row.labels)]

    @cached_property
    def panels(self) -> tuple[Choice, ...]:
        """The panels with a selected run."""
        selected = [run.labels.items() for run in self.opened.runs]
        panels = map(Choice.of, product(*self.opened.study.other_axes.values()))
        return tuple(p for p in panels if any(p.labels.items() <= labels for labels in selected))

    @cached_property
    def drawn(self) -> list[Run]:
        """The finished runs of the rows."""
        lines = {Choice.of((row, panel)).key for row in self.rows for panel in self.panels}
        done = self.opened.results.frame.index
        return [run for run in self.opened.runs if run.cell.key in lines and run.name in done]

    @cached_property
    def seeds(self) -> list[str]:
        """The seeds of the drawn runs."""
        return list(dict.fromkeys(str(run.values.get("seed", 0)) for run in self.drawn))

    def runs(self, row: Choice, panel: Choice) -> list[str]:
        """Return the names of a row's finished runs in a panel."""
        line = Choice.of((row, panel)).key
        return [run.name for run in self.drawn if run.cell.key == line]

    def row_name(self, row: Choice) -> str:
        """Return a row's name in the legend: the labels that differ, and seeds if it lacks some."""
        differing = [c for c in row.labels if len({other.labels[c] for other in self.rows}) > 1]
        name = style.drawable(" · ".join(row.labels[column] for column in differing))
        counts = sorted({len(found) for panel in self.panels if (found := self.runs(row, panel))})
        if all(count == len(self.seeds) for count in counts):
            return name
        fewer = f"{' or '.join(map(str, counts))} of {len(self.seeds)} seeds"
        return f"{name} ({fewer})" if name else fewer

    def lines(self) -> list[tuple[Choice, dict[str, Any]]]:
        """Return the rows, each with the style of its line."""
        rows = enumerate(self.rows)
        return [(row, {**style.look_of(at), "label": self.row_name(row)}) for at, row in rows]

    def draw_curves(
        self, axes: Axes, runs: Sequence[str], curves: pd.DataFrame, share: bool, **look: Any
    ) -> None:
        """Draw the mean curve of runs and its band, of numbers of at least 0, or of shares.

        Only abscissas of all curves are drawn, as the mean would have a step where one ends.
        """
        of_runs = curves[[run for run in runs if run in curves]]
        known = of_runs.dropna(axis="columns", how="all").dropna()
        if not len(known):
            return
        spread_of = self.opened.study.spread
        values = [mean_and_spread(of_seeds, spread_of) for of_seeds in known.to_numpy()]
        mean, spread = np.array(values, dtype=np.float64).T
        axes.plot(known.index, mean, marker="o" if len(mean) <= 10 else "", markersize=3.0, **look)
        low, high = np.maximum(mean - spread, 0.0), mean + spread
        high = np.minimum(high, 1.0) if share else high
        axes.fill_between(known.index, low, high, color=look["color"], alpha=0.18, linewidth=0.0)

    def spread_in_words(self) -> str:
        """Return what bands and bars are; empty if each line is of one run."""
        several = any(n > 1 for n in Counter(run.cell.key for run in self.drawn).values())
        return f"± {self.opened.study.spread.replace('-', ' ')} over the seeds" if several else ""

    def grid(self, lines: int, columns: int) -> tuple[MatplotlibFigure, npt.NDArray[Any]]:
        """Return a figure and its axes, an array (lines, columns), that share their abscissa."""
        # With room for the titles and the legend.
        figure = style.new_figure(max(6.0, 1.0 + 2.6 * columns), max(4.5, 1.1 + 2.3 * lines))
        return figure, figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)

    def panel_grid(self, a_line: int = 4) -> tuple[MatplotlibFigure, npt.NDArray[Any]]:
        """Return a figure and its axes, an array with a panel for each of ``panels``."""
        columns = min(a_line, len(self.panels))
        figure, grid = self.grid(-(-len(self.panels) // columns), columns)
        for axes in grid.flat[len(self.panels) :]:
            axes.set_axis_off()
        for axes, panel in zip(grid.flat, self.panels, strict=False):
            axes.set_title(style.drawable(" · ".join(panel.labels.values())))
        return figure, grid

    def finish(self, figure: MatplotlibFigure) -> None:
        """Add the title, with what all runs share, and one legend for all panels."""
        handles: dict[str, Any] = {}
        for axes in figure.axes:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        width = figure.get_figwidth()
        if handles and list(handles) != [""]:
            # At most four labels in a line, if they fit, each after 0.6 inches of its line.
            longest = 0.6 + max(map(len, handles)) / style.CHARACTERS_AN_INCH
            columns = max(1, min(4, len(handles), int(width / longest)))
            figure.legend(
                handles.values(), handles.keys(), loc="outside lower center", ncols=columns
            )
        study, first = self.opened.study, self.drawn[0].values
        shared = {
            key: first[key]
            for key in ("dataset", "model", "inference", "clients")
            if first.get(key) and all(run.values.get(key) == first[key] for run in self.drawn)
        }
        of_seeds = f"seed{'s' if len(self.seeds) > 1 else ''} {', '.join(self.seeds)}"
        common = " · ".join(filter(None, (style.run_title(shared), of_seeds)))
        title = (self.figure.title or study.title, common, study.scale_in_words)
        lines = filter(None, (*title, self.spread_in_words()))
        figure.suptitle(style.wrapped("\n".join(lines), width))

    def caption(self, names: Sequence[str]) -> str:
        """Return the caption: a sentence with the units and better sides of what is drawn."""
        words = {True: ", higher is better", False: ", lower is better", None: ""}
        parts = [": ".join(filter(None, (self.figure.title, KINDS[self.figure.kind].summary)))]
        for name in names:
            unit = next((f" in {unit}" for end, unit in UNITS.items() if name.endswith(end)), "")
            parts.append(f"{name}{unit}{words[Column(metric=name).higher_is_better]}")
        return f"{'; '.join(filter(None, (*parts, self.spread_in_words())))}."


def draw_study(opened: OpenedStudy) -> list[Path]:
    """Draw a study's figures, by default one of each kind; return the PNG files."""
    return [
        opened.folder.write(f"figures/{name}.png", style.png(figure))
        for name, figure, _ in drawings(opened)
    ]


def drawings(opened: OpenedStudy) -> Iterator[tuple[str, MatplotlibFigure, str]]:
    """Yield the figures that a study asks for, or one of each kind, with names and captions."""
    for spec in opened.study.figures or default_figures(opened.study.base):
        overlay = Overlay(opened, spec)
        if not overlay.drawn:
            continue
        with style.styled():
            draw = {
                "learning-curves": _learning_curves,
                "retention-curves": _retention_curves,
                "numbers": _numbers,
                "client-numbers": _client_numbers,
            }[spec.kind]
            figure, names = draw(overlay, spec)
            if figure is not None:
                overlay.finish(figure)
                yield spec.name, figure, overlay.caption(names)


Drawn = tuple["MatplotlibFigure | None", Sequence[str]]  # of these numbers, if a run has them


def _learning_curves(overlay: Overlay, spec: Figure) -> Drawn:
    names = [spec.metric, *([f"{ENSEMBLE}{spec.metric}"] if spec.ensemble else [])]
    curves = {name: overlay.opened.results.curve(name) for name in names}
    if not any(run.name in curve for run in overlay.drawn for curve in curves.values()):
        return None, names
    shares = spec.metric == "accuracy"
    figure, grid = overlay.panel_grid()
    for number, (axes, panel) in enumerate(zip(grid.flat, overlay.panels, strict=False)):
        for row, look in overlay.lines():
            runs = overlay.runs(row, panel)
            label = f"{look['label']}, ensemble".removeprefix(", ")
            thin = {**look, "linewidth": 0.7, "label": label}
            for name, curve in curves.items():
                line = look if name == spec.metric else thin
                overlay.draw_curves(axes, runs, curve, shares, **line)
        axes.set_xlabel("round")
        # Typical values of evaluate-every.
        style.whole_numbers(axes.xaxis, nbins=6, steps=[1, 2, 5, 10])
        if shares:
            style.percent_axis(axes.yaxis)
        if number % grid.shape[1] == 0:
            axes.set_ylabel("accuracy (%)" if shares else spec.metric)
    return figure, names


def _retention_curves(overlay: Overlay, spec: Figure) -> Drawn:
    import pandas as pd

    results = overlay.opened.results
    named = {
        by: pd.DataFrame(
            {n / 100: results.numbers(retained_at("accuracy", by, n)) for n in PERCENTS}
        ).T
        for by in spec.by
    }
    if not all(any(run.name in curves for run in overlay.drawn) for curves in named.values()):
        return None, ["accuracy"]
    figure, grid = overlay.grid(len(spec.by), len(overlay.panels))
    for (by, curves), line in zip(named.items(), grid, strict=True):
        for panel, axes in zip(overlay.panels, line, strict=True):
            for row, look in overlay.lines():
                overlay.draw_curves(axes, overlay.runs(row, panel), curves, True, **look)
            axes.set_xlim(0.0, 1.0)
            style.percent_axis(axes.xaxis, axes.yaxis)
        line[0].set_ylabel(f"accuracy (%)\nby {by.replace('-', ' ')}")
    for panel, top, bottom in zip(overlay.panels, grid[0], grid[-1], strict=True):
        top.set_title(style.drawable(" · ".join(panel.labels.values())))
        bottom.set_xlabel("data retained (%)")
    return figure, ["accuracy"]


def _numbers(overlay: Overlay, spec: Figure) -> Drawn:
    found = {metric: overlay.opened.results.numbers(metric) for metric in spec.metrics}
    if not any(run.name in numbers for numbers in found.values() for run in overlay.drawn):
        return None, spec.metrics
    figure, grid = overlay.panel_grid()
    figure.set_figheight(max(2.6, 1.4 + 0.6 + 0.28 * len(overlay.rows) * grid.shape[0]))
    shares = all(metric.endswith("accuracy") for metric in spec.metrics)
    offsets = np.linspace(-0.2, 0.2, len(spec.metrics)) if len(spec.metrics) > 1 else [0.0]
    for axes, panel in zip(grid.flat, overlay.panels, strict=False):
        for place, row in enumerate(overlay.rows):
            for number, (metric, offset) in enumerate(zip(spec.metrics, offsets, strict=True)):
                numbers = found[metric]
                values = [numbers[run] for run in overlay.runs(row, panel) if run in numbers]
                mean, spread = mean_and_spread(values, overlay.opened.study.spread)
                if mean is None:
                    continue
                at, color = place + offset, style.COLORS[number % len(style.COLORS)]
                axes.plot(values, [at] * len(values), ".", color=color, alpha=0.5, markersize=3)
                axes.errorbar(mean, at, xerr=spread, fmt=MARKERS[number], color=color, label=metric)
        if shares:
            style.percent_axis(axes.xaxis)
        what = "accuracy" if shares else spec.metrics[0] if len(spec.metrics) == 1 else ""
        axes.set_xlabel(f"{what} (%)" if shares else what)
        axes.set_yticks(range(len(overlay.rows)), [overlay.row_name(r) for r in overlay.rows])
        axes.set_ylim(len(overlay.rows) - 0.5, -0.5)
    return figure, spec.metrics


def _client_numbers(overlay: Overlay, spec: Figure) -> Drawn:
    names = [f"{CLIENTS}{spec.metric}"]
    curves = overlay.opened.results.curves
    clients = curves.metric.str.extract(rf"^client-(\d+)-{re.escape(spec.metric)}$")[0]
    found = curves[clients.notna()].assign(client=clients)
    if not found.run.isin([run.name for run in overlay.drawn]).any():
        return None, names
    values = found.pivot(index="client", columns="run", values="value")
    figure, grid = overlay.panel_grid(2)  # ten clients with several rows need wide panels
    figure.set_figwidth(max(figure.get_figwidth(), 1.0 + 4.2 * grid.shape[1]))
    shares, what = spec.metric.endswith("accuracy"), spec.metric.replace("-", " ")
    for number, (axes, panel) in enumerate(zip(grid.flat, overlay.panels, strict=False)):
        for place, (row, look) in enumerate(overlay.lines()):
            label = str(look.pop("label"))
            of_runs = values[[run for run in overlay.runs(row, panel) if run in values]]
            of_runs = of_runs.dropna(how="all")
            if not of_runs.size:
                axes.plot([], [], linestyle="none", label=f"{label}: no such number")
                continue
            spread = overlay.opened.study.spread
            of_clients = [mean_and_spread(s[~np.isnan(s)], spread) for s in of_runs.to_numpy()]
            means, errors = np.array(of_clients, np.float64).T
            offset = 0.6 * ((place + 0.5) / len(overlay.rows) - 0.5)
            marker = MARKERS[place % len(MARKERS)]
            at = of_runs.index.to_numpy(np.float64) + offset
            dots: dict[str, Any] = {"fmt": marker, "markersize": 3.0, "color": look["color"]}
            axes.errorbar(at, means, yerr=errors, label=label, **dots)
            axes.axhline(means.mean(), **look, linewidth=0.7)
        axes.set_xlabel("client")
        style.whole_numbers(axes.xaxis)
        if shares:
            style.percent_axis(axes.yaxis)
        if number % grid.shape[1] == 0:
            axes.set_ylabel(f"{what} (%)" if shares else what)
    return figure, names
