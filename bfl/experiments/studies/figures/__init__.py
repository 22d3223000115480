"""Figures of a study: rows overlaid, with bands of their spread over seeds.

Each combination of the axes has a panel. Matplotlib is imported when a figure is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from pydantic import Field, ValidationInfo, field_validator, model_validator

from bfl.errors import unknown_name
from bfl.evaluation.evaluated_ensemble import ENSEMBLE
from bfl.evaluation.metrics import metric_names
from bfl.evaluation.regression import ERROR
from bfl.evaluation.uncertainty import uncertainties
from bfl.experiments.results.evaluated_clients import CLIENTS, names_of_means
from bfl.experiments.results.figures.style import COLORS, look_of, percent_axis, whole_numbers
from bfl.experiments.results.summary import retained
from bfl.experiments.studies.columns import numbers_of_a_run
from bfl.experiments.studies.figures.base import (
    MARKERS,
    Overlay,
    StudyFigure,
    draw_study,
    panel_title,
)
from bfl.experiments.studies.run_result import RunResult
from bfl.experiments.studies.study import Choice, study_figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

__all__ = ["StudyFigure", "draw_study", "study_figures"]

WIDTH = 0.6
"""The width that the rows of one client share; clients are 1 apart."""


def _known(what: str, name: str, known: Sequence[str]) -> str:
    if name not in known:
        raise ValueError(unknown_name(what, name, known))
    return name


@study_figures.register("learning-curves")
class LearningCurves(StudyFigure):
    """A metric on the test data after each evaluated round, by row, in a panel for each partition.

    A line without a finished run shows its begun runs, up to the last round that all have reached.
    With ``ensemble`` a thin line shows the metric of the ensemble that is evaluated besides the
    posterior.

    Reference:
        Fischer et al. (2024), Figs. 3, 5, 8 and 9; Chen and Chao (2021), Fig. 3, with ``ensemble``.
    """

    metric: str = Field("accuracy", description="the metric to draw")
    ensemble: bool = Field(False, description="whether the ensemble's metric is drawn, too")

    @field_validator("metric")
    @classmethod
    def _is_known(cls, metric: str) -> str:
        return _known("metric", metric, metric_names())

    def numbers(self) -> Sequence[str]:
        """See ``StudyFigure``."""
        return [name for name, _ in self._lines("")]

    def shows(self, result: RunResult) -> bool:
        """Return whether a round of the run was evaluated."""
        return any(_points(result, name) for name in self.numbers())

    def draw_panel(self, axes: Axes, overlay: Overlay, panel: Choice, *, first: bool) -> None:
        """See ``StudyFigure``."""
        highest = 1.0 if self.metric == "accuracy" else math.inf
        for row, look in overlay.lines():
            runs = overlay.runs(row, panel)
            for name, changed in self._lines(str(look["label"])):
                if curves := [points for run in runs if (points := _points(run, name))]:
                    overlay.draw_curves(axes, curves, {**look, **changed}, highest)
        axes.set_xlabel("round")
        # Typical values of evaluate-every.
        whole_numbers(axes.xaxis, nbins=6, steps=[1, 2, 5, 10])
        if self.metric == "accuracy":
            percent_axis(axes.yaxis)
        if first:
            axes.set_ylabel("accuracy (%)" if self.metric == "accuracy" else self.metric)

    def _lines(self, label: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the metrics to draw for a row, each with its line's style."""
        look = {"linewidth": 0.7, "label": f"{label}, ensemble".removeprefix(", ")}
        also = [(f"{ENSEMBLE}{self.metric}", look)] if self.ensemble else []
        return [(self.metric, {}), *also]


def _points(run: RunResult, metric: str) -> dict[float, float]:
    return {row["round"]: row[metric] for row in run.rounds if metric in row}


@study_figures.register("retention-curves")
class RetentionCurves(StudyFigure):
    """Accuracy against the share of the test data that is retained, by row.

    There is a line of panels for each uncertainty, and a column for each partition. A curve that
    rises from right to left shows that the uncertainty identifies errors.

    Reference:
        Fischer et al. (2024), Figs. 2, 4, 6 and 7; Filos et al. (2019).
    """

    by: list[str] = Field(
        default_factory=lambda: ["predictive-entropy", "aleatoric", "epistemic"],
        min_length=1,
        description="the uncertainties by which examples are discarded",
    )

    @field_validator("by")
    @classmethod
    def _are_known(cls, by: list[str]) -> list[str]:
        known = [u.name for u in uncertainties.classes() if u.retention]
        return [_known("uncertainty", name, known) for name in by]

    def numbers(self) -> Sequence[str]:
        """See ``StudyFigure``."""
        return ["accuracy"]

    def shows(self, result: RunResult) -> bool:
        """Return whether the run has a final evaluation and predicts classes."""
        return bool(result.retention) and ERROR not in result.metrics

    def compose(self, overlay: Overlay) -> MatplotlibFigure:
        """See ``StudyFigure``."""
        figure, grid = overlay.grid(len(self.by), len(overlay.panels))
        for by, line in zip(self.by, grid, strict=True):
            for panel, axes in zip(overlay.panels, line, strict=True):
                for row, look in overlay.lines():
                    if curves := [
                        retained(run.retention, "accuracy", by, run.source)
                        for run in overlay.runs(row, panel)
                    ]:
                        overlay.draw_curves(axes, curves, look, 1.0)
                axes.set_xlim(0.0, 1.0)
                percent_axis(axes.xaxis)
                percent_axis(axes.yaxis)
            line[0].set_ylabel(f"accuracy (%)\nby {by.replace('-', ' ')}")
        for panel, top, bottom in zip(overlay.panels, grid[0], grid[-1], strict=True):
            top.set_title(panel_title(panel))
            bottom.set_xlabel("data retained (%)")
        overlay.finish(figure)
        return figure


@study_figures.register("numbers")
class Numbers(StudyFigure):
    """Means of one or several numbers, with their spread and each seed's value.

    Finished runs are shown, a line for each row, in a panel for each partition.

    Reference:
        Cleveland (1984), "Graphical methods for data presentation", on dot charts.
    """

    metrics: list[str] = Field(
        default_factory=lambda: ["accuracy"],
        min_length=1,
        max_length=len(MARKERS),
        description="the numbers of metrics.json to draw",
    )

    @field_validator("metrics")
    @classmethod
    def _are_known(cls, metrics: list[str]) -> list[str]:
        return [_known("metric", name, numbers_of_a_run()) for name in metrics]

    def numbers(self) -> Sequence[str]:
        """See ``StudyFigure``."""
        return self.metrics

    def shows(self, result: RunResult) -> bool:
        """Return whether the run is finished and has one of the numbers."""
        return result.over and any(metric in result.metrics for metric in self.metrics)

    def size(self, figure: MatplotlibFigure, rows: int, grid: tuple[int, ...]) -> None:
        """See ``StudyFigure``."""
        figure.set_figheight(max(2.6, 1.4 + 0.6 + 0.28 * rows * grid[0]))

    def draw_panel(self, axes: Axes, overlay: Overlay, panel: Choice, *, first: bool) -> None:
        """See ``StudyFigure``."""
        offsets = np.linspace(-0.2, 0.2, len(self.metrics)) if len(self.metrics) > 1 else [0.0]
        for place, row in enumerate(overlay.rows):
            runs = overlay.runs(row, panel)
            for number, (metric, offset) in enumerate(zip(self.metrics, offsets, strict=True)):
                values = [float(run.metrics[metric]) for run in runs if metric in run.metrics]
                mean, spread = overlay.mean_and_spread(values)
                if mean is None:
                    continue
                at, color = place + offset, COLORS[number % len(COLORS)]
                axes.plot(values, [at] * len(values), ".", color=color, alpha=0.5, markersize=3)
                axes.errorbar(mean, at, xerr=spread, fmt=MARKERS[number], color=color, label=metric)
        shares = all(metric.endswith("accuracy") for metric in self.metrics)
        if shares:
            percent_axis(axes.xaxis)
        what = "accuracy" if shares else self.metrics[0] if len(self.metrics) == 1 else ""
        axes.set_xlabel(f"{what} (%)" if shares else what)
        axes.set_yticks(range(len(overlay.rows)), [overlay.name(r) for r in overlay.rows])
        axes.set_ylim(len(overlay.rows) - 0.5, -0.5)


@study_figures.register("client-numbers")
class ClientNumbers(StudyFigure):
    """A number of each client, as mean and spread over the seeds, and a line at the clients' mean.

    Finished runs with clients' own test data are shown, in a panel for each partition. If a row's
    clients do not have the number, ``otherwise`` is drawn, and the legend names it. If they have
    neither, the legend says so: without a personal model there is no "better" of two models.

    Reference:
        Yang et al. (2023), Tables 2 and 3: each client's best accuracy.
    """

    panels_a_line: ClassVar[int] = 2  # ten clients with several rows need wide panels

    metric: str = Field(
        "global-accuracy", description="the number to draw, by its name in run.json:clients"
    )
    otherwise: str = Field(
        "", description="the number to draw where clients do not have the former; empty: none"
    )

    @field_validator("metric", "otherwise")
    @classmethod
    def _is_known(cls, metric: str, field: ValidationInfo) -> str:
        if field.field_name == "otherwise" and not metric:
            return metric
        known = [name.removeprefix(CLIENTS) for name in names_of_means()]
        return _known("number of a client", metric, known)

    @model_validator(mode="after")
    def _has_one_axis(self) -> Self:
        if self.otherwise and _quantity(self.otherwise) != _quantity(self.metric):
            raise ValueError(
                f"otherwise is {self.otherwise!r} besides metric = {self.metric!r}, which share an "
                f"axis; allowed: a number whose name ends in '{_quantity(self.metric)}'"
            )
        return self

    def numbers(self) -> Sequence[str]:
        """See ``StudyFigure``: their means over the clients have columns."""
        return [f"{CLIENTS}{name}" for name in (self.metric, self.otherwise) if name]

    def shows(self, result: RunResult) -> bool:
        """Return whether the run is finished and one of its clients has the number."""
        return result.over and bool(self._metric_of([result]))

    def _metric_of(self, runs: Iterable[RunResult]) -> str:
        """Return the number to draw for a row's runs; empty if their clients have none."""
        had = {name for run in runs for own in run.clients.values() for name in own}
        return next((name for name in (self.metric, self.otherwise) if name in had), "")

    def size(self, figure: MatplotlibFigure, rows: int, grid: tuple[int, ...]) -> None:
        """See ``StudyFigure``."""
        figure.set_figwidth(max(figure.get_figwidth(), 1.0 + 4.2 * grid[1]))

    def draw_panel(self, axes: Axes, overlay: Overlay, panel: Choice, *, first: bool) -> None:
        """See ``StudyFigure``."""
        for place, (row, look) in enumerate(overlay.lines()):
            runs, label = overlay.runs(row, panel), str(look["label"])
            if metric := self._metric_of(runs):
                other = "" if metric == self.metric else f" ({metric.replace('-', ' ')})"
                label = f"{label}{other}".lstrip()
                _draw_clients(axes, overlay, _by_client(runs, metric), place, label)
            elif not any(overlay.runs(row, each) for each in overlay.panels):
                axes.plot([], [], linestyle="none", label=f"{label}: no such number")
        shares = self.metric.endswith("accuracy")
        axes.set_xlabel("client")
        whole_numbers(axes.xaxis)
        if shares:
            percent_axis(axes.yaxis)
        if first:
            axes.set_ylabel(self.metric.replace("-", " ") + (" (%)" if shares else ""))


def _draw_clients(
    axes: Axes, overlay: Overlay, values: dict[int, list[float]], place: int, label: str
) -> None:
    """Draw a row's clients and the mean over all of them."""
    offset = WIDTH * ((place + 0.5) / max(1, len(overlay.rows)) - 0.5)
    means, spreads = np.array([overlay.mean_and_spread(own) for own in values.values()], float).T
    look = look_of(place)
    axes.errorbar(
        np.array(list(values)) + offset,
        means,
        yerr=spreads,
        fmt=MARKERS[place % len(MARKERS)],
        markersize=3.0,
        color=look["color"],
        label=label,
    )
    axes.axhline(means.mean(), **look, linewidth=0.7)


def _quantity(metric: str) -> str:
    """Return a client's number without its prefixes: ``accuracy`` of ``last-meme-accuracy``."""
    return metric.split("-", 2)[-1]


def _by_client(runs: Iterable[RunResult], metric: str) -> dict[int, list[float]]:
    """Return the values of each client, one from each run that has it, sorted by client."""
    values: dict[int, list[float]] = {}
    for run in runs:
        for client, numbers in run.clients.items():
            if metric in numbers:
                values.setdefault(int(client), []).append(float(numbers[metric]))
    return dict(sorted(values.items()))
