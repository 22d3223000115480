"""Final numbers, row by row, with each seed's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field, field_validator

from bfl.errors import unknown_name
from bfl.experiments.results.figures.style import COLORS, percent_axis
from bfl.experiments.studies.columns import numbers_of_a_run
from bfl.experiments.studies.figures.base import (
    MARKERS,
    PANELS_A_LINE,
    Overlay,
    StudyFigure,
    finish,
    panel_grid,
    panel_title,
    places,
    study_figures,
)
from bfl.experiments.studies.run_result import RunResult
from bfl.experiments.studies.table import mean_and_spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure


def _default_metrics() -> list[str]:
    return ["accuracy"]


@study_figures.register("numbers")
class Numbers(StudyFigure):
    """The mean of a number, or of several, with its spread and each seed's own, a line a row.

    Of each line of the table that is done; in one panel a partition.

    Reference:
        Cleveland (1984), "Graphical methods for data presentation", on dot charts.
    """

    metrics: list[str] = Field(
        default_factory=_default_metrics,
        min_length=1,
        max_length=len(MARKERS),
        description="numbers of metrics.json that are drawn beside each other",
    )

    @field_validator("metrics")
    @classmethod
    def _are_known(cls, metrics: list[str]) -> list[str]:
        known = numbers_of_a_run()
        for name in metrics:
            if name not in known:
                raise ValueError(unknown_name("metric", name, known))
        return metrics

    def shows(self, result: RunResult) -> bool:
        """Return whether the run is over and has one of the numbers."""
        return result.over and any(metric in result.metrics for metric in self.metrics)

    def compose(self, overlay: Overlay) -> MatplotlibFigure | None:
        """Return the figure, or None when no run is over."""
        columns = min(PANELS_A_LINE, len(overlay.panels))
        figure, grid = panel_grid(-(-len(overlay.panels) // columns), columns)
        high = 0.6 + 0.28 * len(overlay.rows) * grid.shape[0]
        figure.set_figheight(max(2.6, 1.4 + high))
        offsets = np.linspace(-0.2, 0.2, len(self.metrics)) if len(self.metrics) > 1 else [0.0]
        drawn = False
        for _, axes, panel in places(grid, overlay):
            for place, row in enumerate(overlay.rows):
                finished = [run.metrics for run in overlay.runs(row, panel)]
                for number, (metric, offset) in enumerate(zip(self.metrics, offsets, strict=True)):
                    values = [float(m[metric]) for m in finished if metric in m]
                    mean, spread = mean_and_spread(values, overlay.scaled.study.spread)
                    if mean is None:
                        continue
                    at, color = place + offset, COLORS[number % len(COLORS)]
                    axes.plot(values, [at] * len(values), ".", color=color, alpha=0.5, markersize=3)
                    axes.errorbar(
                        mean, at, xerr=spread, fmt=MARKERS[number], color=color, label=metric
                    )
                    drawn = True
            axes.set_title(panel_title(panel))
            shares = all(metric.endswith("accuracy") for metric in self.metrics)
            if shares:
                percent_axis(axes.xaxis)
            what = "accuracy" if shares else self.metrics[0] if len(self.metrics) == 1 else ""
            axes.set_xlabel(f"{what} (%)" if shares else what)
            axes.set_yticks(range(len(overlay.rows)), [overlay.name(r) for r in overlay.rows])
            axes.set_ylim(len(overlay.rows) - 0.5, -0.5)
        finish(figure, overlay)
        return figure if drawn else None
