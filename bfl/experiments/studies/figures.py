"""Figures of a study: rows overlaid, with bands of their spread over seeds, a panel a partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.evaluation.evaluated_ensemble import ENSEMBLE
from bfl.evaluation.regression import ERROR
from bfl.experiments.results.evaluated_clients import CLIENTS
from bfl.experiments.results.figures import style
from bfl.experiments.studies.columns import (
    ClientNumbers,
    Column,
    Figure,
    LearningCurves,
    Numbers,
    RetentionCurves,
    default_figures,
    retained_at,
)
from bfl.experiments.studies.results import PERCENTS, OpenedStudy
from bfl.experiments.studies.study import Choice, Run
from bfl.experiments.studies.table import mean_and_spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

MARKERS = ("o", "s", "D", "^", "v", "P")
"""Markers of different numbers in one panel."""

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

    def runs(self, row: Choice, panel: Choice) -> list[str]:
        """Return the names of a row's finished runs in a panel."""
        line = Choice.of((row, panel)).key
        return [run.name for run in self.drawn if run.cell.key == line]

    @property
    def _seeds(self) -> list[str]:
        return list(dict.fromkeys(str(run.values.get("seed", 0)) for run in self.drawn))

    def row_name(self, row: Choice) -> str:
        """Return a row's name in the legend: the labels that differ, and seeds if it lacks some."""
        differing = [c for c in row.labels if len({other.labels[c] for other in self.rows}) > 1]
        name = style.drawable(" · ".join(row.labels[column] for column in differing))
        counts = sorted({len(found) for panel in self.panels if (found := self.runs(row, panel))})
        if all(count == len(self._seeds) for count in counts):
            return name
        fewer = f"{' or '.join(map(str, counts))} of {len(self._seeds)} seeds"
        return f"{name} ({fewer})" if name else fewer

    def lines(self) -> Iterator[tuple[Choice, dict[str, Any]]]:
        """Yield the rows, each with the style of its line."""
        for index, row in enumerate(self.rows):
            yield row, {**style.look_of(index), "label": self.row_name(row)}

    def draw_curves(
        self,
        axes: Axes,
        curves: Sequence[Mapping[Any, float]],
        look: Mapping[str, Any],
        highest: float,
    ) -> None:
        """Draw the mean curve of several seeds and its band, of numbers from 0 to ``highest``.

        Only abscissas of all curves are drawn, as the mean would have a step where one ends.
        """
        x = sorted(set.intersection(*map(set, curves)))
        values = [mean_and_spread([c[at] for c in curves], self.opened.study.spread) for at in x]
        mean, spread = np.array(values, dtype=np.float64).reshape(-1, 2).T
        axes.plot(x, mean, marker="o" if len(x) <= 10 else "", markersize=3.0, **look)
        low, high = np.maximum(mean - spread, 0.0), np.minimum(mean + spread, highest)
        axes.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0.0)

    def spread_in_words(self) -> str:
        """Return what bands and bars are; empty where each line is of one run."""
        several = any(n > 1 for n in Counter(run.cell.key for run in self.drawn).values())
        return f"± {self.opened.study.spread.replace('-', ' ')} over the seeds" if several else ""

    def title(self) -> str:
        """Return the figure's title: subject, settings that all runs share, scale, spread."""
        study, seeds = self.opened.study, self._seeds
        keys = ("dataset", "model", "inference", "clients")
        values = [run.values for run in self.drawn]
        shared = {
            key: values[0][key]
            for key in keys
            if values[0].get(key) and all(each.get(key) == values[0][key] for each in values)
        }
        of_seeds = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"
        common = " · ".join(filter(None, (style.run_title(shared), of_seeds)))
        first = self.figure.title or study.title
        return "\n".join(
            filter(None, (first, common, study.scale_in_words, self.spread_in_words()))
        )

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

    def finish(self, figure: MatplotlibFigure) -> MatplotlibFigure:
        """Add the title and one legend for all panels, and return the figure."""
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
        figure.suptitle(style.wrapped(self.title(), width))
        return figure

    def caption(self, names: Sequence[str]) -> str:
        """Return the caption: a sentence with the units and better sides of what is drawn."""
        words = {True: ", higher is better", False: ", lower is better", None: ""}
        summary = (type(self.figure).__doc__ or "").partition("\n")[0].rstrip(".")
        parts = [": ".join(filter(None, (self.figure.title, summary)))]
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
            match spec:
                case LearningCurves():
                    figure, names = _learning_curves(overlay, spec)
                case RetentionCurves():
                    figure, names = _retention_curves(overlay, spec)
                case Numbers():
                    figure, names = _numbers(overlay, spec)
                case ClientNumbers():
                    figure, names = _client_numbers(overlay, spec)
        if figure is not None:
            yield spec.name, figure, overlay.caption(names)


Drawn = tuple["MatplotlibFigure | None", Sequence[str]]
"""A figure, if a run has its numbers, and the names of these."""


def _learning_curves(overlay: Overlay, spec: LearningCurves) -> Drawn:
    names = [spec.metric, *([f"{ENSEMBLE}{spec.metric}"] if spec.ensemble else [])]
    points = overlay.opened.results.points
    if not any(name in points[run.name] for run in overlay.drawn for name in names):
        return None, names
    shares = spec.metric == "accuracy"
    figure, grid = overlay.panel_grid()
    for number, (axes, panel) in enumerate(zip(grid.flat, overlay.panels, strict=False)):
        for row, look in overlay.lines():
            label = f"{look['label']}, ensemble".removeprefix(", ")
            of_ensemble = {**look, "linewidth": 0.7, "label": label}
            for name in names:
                runs = overlay.runs(row, panel)
                if curves := [points[run][name] for run in runs if name in points[run]]:
                    line = look if name == spec.metric else of_ensemble
                    overlay.draw_curves(axes, curves, line, 1.0 if shares else np.inf)
        axes.set_xlabel("round")
        # Typical values of evaluate-every.
        style.whole_numbers(axes.xaxis, nbins=6, steps=[1, 2, 5, 10])
        if shares:
            style.percent_axis(axes.yaxis)
        if number % grid.shape[1] == 0:
            axes.set_ylabel("accuracy (%)" if shares else spec.metric)
    return overlay.finish(figure), names


def _retention_curves(overlay: Overlay, spec: RetentionCurves) -> Drawn:
    points = overlay.opened.results.points
    named = {by: {n / 100: retained_at("accuracy", by, n) for n in PERCENTS} for by in spec.by}
    if not any(all(n[1.0] in points[run.name] for n in named.values()) for run in overlay.drawn):
        return None, ["accuracy"]
    figure, grid = overlay.grid(len(spec.by), len(overlay.panels))
    for (by, names), line in zip(named.items(), grid, strict=True):
        for panel, axes in zip(overlay.panels, line, strict=True):
            for row, look in overlay.lines():
                of_runs = [points[name] for name in overlay.runs(row, panel)]
                curves = [
                    {share: max(own[n].items())[1] for share, n in names.items() if n in own}
                    for own in of_runs
                ]
                if curves := [curve for curve in curves if curve]:
                    overlay.draw_curves(axes, curves, look, 1.0)
            axes.set_xlim(0.0, 1.0)
            style.percent_axis(axes.xaxis, axes.yaxis)
        line[0].set_ylabel(f"accuracy (%)\nby {by.replace('-', ' ')}")
    for panel, top, bottom in zip(overlay.panels, grid[0], grid[-1], strict=True):
        top.set_title(style.drawable(" · ".join(panel.labels.values())))
        bottom.set_xlabel("data retained (%)")
    return overlay.finish(figure), ["accuracy"]


def _numbers(overlay: Overlay, spec: Numbers) -> Drawn:
    results = overlay.opened.results
    if not any(run.name in results.numbers(m) for m in spec.metrics for run in overlay.drawn):
        return None, spec.metrics
    figure, grid = overlay.panel_grid()
    figure.set_figheight(max(2.6, 1.4 + 0.6 + 0.28 * len(overlay.rows) * grid.shape[0]))
    shares = all(metric.endswith("accuracy") for metric in spec.metrics)
    offsets = np.linspace(-0.2, 0.2, len(spec.metrics)) if len(spec.metrics) > 1 else [0.0]
    for axes, panel in zip(grid.flat, overlay.panels, strict=False):
        for place, row in enumerate(overlay.rows):
            for number, (metric, offset) in enumerate(zip(spec.metrics, offsets, strict=True)):
                numbers = results.numbers(metric)
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
    return overlay.finish(figure), spec.metrics


def _client_numbers(overlay: Overlay, spec: ClientNumbers) -> Drawn:
    metrics = [name for name in (spec.metric, spec.otherwise) if name]
    names = [f"{CLIENTS}{name}" for name in metrics]
    points = overlay.opened.results.points

    def known(row: Choice, panel: Choice) -> tuple[str, dict[int, list[float]]]:
        """Return the number to draw, and by client its values in the runs; ("", {}) for none."""
        for metric in metrics:
            values: dict[int, list[float]] = {}
            for own in (points[name] for name in overlay.runs(row, panel)):
                for name, curve in own.items():
                    client = name.removeprefix("client-").removesuffix(f"-{metric}")
                    if name == f"client-{client}-{metric}" and client.isdecimal():
                        values.setdefault(int(client), []).append(max(curve.items())[1])
            if values:
                return metric, dict(sorted(values.items()))
        return "", {}

    if not any(known(row, panel)[0] for row in overlay.rows for panel in overlay.panels):
        return None, names
    figure, grid = overlay.panel_grid(2)  # ten clients with several rows need wide panels
    figure.set_figwidth(max(figure.get_figwidth(), 1.0 + 4.2 * grid.shape[1]))
    shares = spec.metric.endswith("accuracy")
    for number, (axes, panel) in enumerate(zip(grid.flat, overlay.panels, strict=False)):
        for place, (row, look) in enumerate(overlay.lines()):
            label = str(look.pop("label"))
            metric, values = known(row, panel)
            if metric:
                other = "" if metric == spec.metric else f" ({metric.replace('-', ' ')})"
                offset = 0.6 * ((place + 0.5) / len(overlay.rows) - 0.5)
                spreads = [
                    mean_and_spread(own, overlay.opened.study.spread) for own in values.values()
                ]
                means, errors = np.array(spreads, np.float64).T
                axes.errorbar(
                    np.array(list(values)) + offset,
                    means,
                    yerr=errors,
                    fmt=MARKERS[place % len(MARKERS)],
                    markersize=3.0,
                    color=look["color"],
                    label=f"{label}{other}".lstrip(),
                )
                axes.axhline(means.mean(), **look, linewidth=0.7)
            elif not any(known(row, each)[0] for each in overlay.panels):
                axes.plot([], [], linestyle="none", label=f"{label}: no such number")
        axes.set_xlabel("client")
        style.whole_numbers(axes.xaxis)
        if shares:
            style.percent_axis(axes.yaxis)
        if number % grid.shape[1] == 0:
            axes.set_ylabel(spec.metric.replace("-", " ") + (" (%)" if shares else ""))
    return overlay.finish(figure), names
