"""Figures of a study: rows overlaid, with bands of their spread over seeds, a panel a partition."""

from __future__ import annotations

import re
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
from bfl.experiments.results.figures import style
from bfl.experiments.studies.columns import KINDS, Figure, default_figures, retained_at
from bfl.experiments.studies.results import PERCENTS, OpenedStudy
from bfl.experiments.studies.study import Choice, Run
from bfl.experiments.studies.table import mean_and_spread

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

MARKERS = ("o", "s", "D", "^", "v", "P")  # markers of different numbers in one panel


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

    def runs(self, row: Choice, panel: Choice) -> list[str]:
        """Return the names of a row's finished runs in a panel."""
        line = Choice.of((row, panel)).key
        return [run.name for run in self.drawn if run.cell.key == line]

    def row_name(self, row: Choice) -> str:
        """Return a row's name in the legend: the labels that differ."""
        differing = [c for c in row.labels if len({other.labels[c] for other in self.rows}) > 1]
        return " · ".join(row.labels[column] for column in differing)

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

    def panel_grid(self, a_line: int = 4) -> tuple[MatplotlibFigure, npt.NDArray[Any]]:
        """Return a figure and its axes, an array with a panel for each of ``panels``."""
        columns = min(a_line, len(self.panels))
        figure, grid = _grid(-(-len(self.panels) // columns), columns)
        for axes in grid.flat[len(self.panels) :]:
            axes.set_axis_off()
        for axes, panel in zip(grid.flat, self.panels, strict=False):
            axes.set_title(" · ".join(panel.labels.values()))
        return figure, grid

    def finish(self, figure: MatplotlibFigure) -> None:
        """Add the title, and one legend for all panels."""
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
        seeds = dict.fromkeys(str(run.values.get("seed", 0)) for run in self.drawn)
        title = (self.figure.title or self.opened.study.title, f"seeds {', '.join(seeds)}")
        figure.suptitle(style.wrapped("\n".join((*title, self.spread_in_words())), width))

    def spread_in_words(self) -> str:
        """Return what bands and bars are."""
        return f"± {self.opened.study.spread.replace('-', ' ')} over the seeds"


def _grid(lines: int, columns: int) -> tuple[MatplotlibFigure, npt.NDArray[Any]]:
    """Return a figure and its axes, an array (lines, columns), that share their abscissa."""
    # With room for the titles and the legend.
    figure = style.new_figure(max(6.0, 1.0 + 2.6 * columns), max(4.5, 1.1 + 2.3 * lines))
    return figure, figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)


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
            figure = draw(overlay, spec)
            if figure is not None:
                overlay.finish(figure)
                caption = ": ".join(filter(None, (spec.title, KINDS[spec.kind])))
                yield spec.name, figure, f"{caption}; {overlay.spread_in_words()}."


def _learning_curves(overlay: Overlay, spec: Figure) -> MatplotlibFigure | None:
    shares = overlay.opened.study.base.get("task") != "regression"
    metric = "accuracy" if shares else ERROR
    names = [metric, *([f"{ENSEMBLE}{metric}"] if spec.ensemble else [])]
    curves = {name: overlay.opened.results.curve(name) for name in names}
    if not any(run.name in curve for run in overlay.drawn for curve in curves.values()):
        return None
    figure, grid = overlay.panel_grid()
    for number, (axes, panel) in enumerate(zip(grid.flat, overlay.panels, strict=False)):
        for row, look in overlay.lines():
            runs = overlay.runs(row, panel)
            label = f"{look['label']}, ensemble".removeprefix(", ")
            thin = {**look, "linewidth": 0.7, "label": label}
            for name, curve in curves.items():
                overlay.draw_curves(axes, runs, curve, shares, **look if name == metric else thin)
        axes.set_xlabel("round")
        # Typical values of evaluate-every.
        style.whole_numbers(axes.xaxis, nbins=6, steps=[1, 2, 5, 10])
        if shares:
            style.percent_axis(axes.yaxis)
        if number % grid.shape[1] == 0:
            axes.set_ylabel("accuracy (%)" if shares else metric)
    return figure


def _retention_curves(overlay: Overlay, spec: Figure) -> MatplotlibFigure | None:
    import pandas as pd

    results = overlay.opened.results
    named = {
        by: pd.DataFrame(
            {n / 100: results.numbers(retained_at("accuracy", by, n)) for n in PERCENTS}
        ).T
        for by in spec.by
    }
    if not all(any(run.name in curves for run in overlay.drawn) for curves in named.values()):
        return None
    figure, grid = _grid(len(spec.by), len(overlay.panels))
    for (by, curves), line in zip(named.items(), grid, strict=True):
        for panel, axes in zip(overlay.panels, line, strict=True):
            for row, look in overlay.lines():
                overlay.draw_curves(axes, overlay.runs(row, panel), curves, True, **look)
            axes.set_xlim(0.0, 1.0)
            style.percent_axis(axes.xaxis, axes.yaxis)
        line[0].set_ylabel(f"accuracy (%)\nby {by.replace('-', ' ')}")
    for panel, top, bottom in zip(overlay.panels, grid[0], grid[-1], strict=True):
        top.set_title(" · ".join(panel.labels.values()))
        bottom.set_xlabel("data retained (%)")
    return figure


def _numbers(overlay: Overlay, spec: Figure) -> MatplotlibFigure | None:
    found = {metric: overlay.opened.results.numbers(metric) for metric in spec.metrics}
    if not any(run.name in numbers for numbers in found.values() for run in overlay.drawn):
        return None
    figure, grid = overlay.panel_grid()
    figure.set_figheight(max(2.6, 2.0 + 0.28 * len(overlay.rows) * grid.shape[0]))
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
    return figure


def _client_numbers(overlay: Overlay, spec: Figure) -> MatplotlibFigure | None:
    curves = overlay.opened.results.curves
    clients = curves.metric.str.extract(rf"^client-(\d+)-{re.escape(spec.metric)}$")[0]
    found = curves[clients.notna()].assign(client=clients)
    if not found.run.isin([run.name for run in overlay.drawn]).any():
        return None
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
                continue
            spread = overlay.opened.study.spread
            of_clients = [mean_and_spread(s[~np.isnan(s)], spread) for s in of_runs.to_numpy()]
            means, errors = np.array(of_clients, np.float64).T
            offset = 0.6 * ((place + 0.5) / len(overlay.rows) - 0.5)
            at = of_runs.index.to_numpy(np.float64) + offset
            dots: dict[str, Any] = {"markersize": 3.0, "color": look["color"], "label": label}
            axes.errorbar(at, means, yerr=errors, fmt=MARKERS[place % len(MARKERS)], **dots)
            axes.axhline(means.mean(), **look, linewidth=0.7)
        axes.set_xlabel("client")
        style.whole_numbers(axes.xaxis)
        if shares:
            style.percent_axis(axes.yaxis)
        if number % grid.shape[1] == 0:
            axes.set_ylabel(f"{what} (%)" if shares else what)
    return figure
