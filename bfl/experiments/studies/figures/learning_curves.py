"""Learning curves, overlaid by row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pydantic import Field, field_validator

from bfl.errors import unknown_name
from bfl.evaluation.metrics import metrics
from bfl.evaluation.predictives.evaluated import ENSEMBLE
from bfl.experiments.results.figures.style import percent_axis
from bfl.experiments.studies.figures.base import (
    PANELS_A_LINE,
    Overlay,
    StudyFigure,
    draw_curve,
    finish,
    panel_grid,
    panel_title,
    places,
    study_figures,
)
from bfl.experiments.studies.run_result import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure


@study_figures.register("learning-curves")
class LearningCurves(StudyFigure):
    """A metric on the test data after each evaluated round, by row, in one panel a partition.

    Of a line of which no run is finished, those that have begun are shown as far as they all have
    come. With ``ensemble`` the same of the
    ensemble that is evaluated besides the posterior is drawn as well, thin.

    Reference:
        Fischer et al. (2024), Figs. 3, 5, 8 and 9; Chen and Chao (2021), Fig. 3, with ``ensemble``.
    """

    metric: str = Field("accuracy", description="what is drawn against the round")
    ensemble: bool = Field(False, description="whether the ensemble's is drawn as well")

    @field_validator("metric")
    @classmethod
    def _is_known(cls, metric: str) -> str:
        if metric not in metrics.names():
            raise ValueError(unknown_name("metric", metric, metrics.names()))
        return metric

    def shows(self, result: RunResult) -> bool:
        """Return whether a round of the run was evaluated."""
        return any(_points(result, name) for name, _ in self._lines(""))

    def compose(self, overlay: Overlay) -> MatplotlibFigure | None:
        """Return the figure, or None when no round of any run was evaluated."""
        from matplotlib.ticker import MaxNLocator

        columns = min(PANELS_A_LINE, len(overlay.panels))
        figure, grid = panel_grid(-(-len(overlay.panels) // columns), columns)
        highest = 1.0 if self.metric == "accuracy" else math.inf
        drawn = False
        for number, axes, panel in places(grid, overlay):
            for row, look in overlay.lines():
                runs = list(overlay.runs(row, panel))
                for name, changed in self._lines(str(look["label"])):
                    curves = [c for run in runs if (c := _points(run, name))]
                    if curves:
                        draw_curve(axes, overlay.average(curves), {**look, **changed}, highest)
                        drawn = True
            axes.set_title(panel_title(panel))
            axes.set_xlabel("round")
            # Rounds are evaluated at multiples of such steps.
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6, steps=[1, 2, 5, 10]))
            if self.metric == "accuracy":
                percent_axis(axes.yaxis)
            if number % columns == 0:
                axes.set_ylabel("accuracy (%)" if self.metric == "accuracy" else self.metric)
        finish(figure, overlay)
        return figure if drawn else None

    def _lines(self, label: str) -> list[tuple[str, dict[str, object]]]:
        """Return the metrics that are drawn of a row, each with what its line's look differs in."""
        of_ensemble: dict[str, object] = {
            "linewidth": 0.7,
            "label": f"{label}, ensemble".removeprefix(", "),
        }
        also = [(f"{ENSEMBLE}{self.metric}", of_ensemble)] if self.ensemble else []
        return [(self.metric, {}), *also]


def _points(run: RunResult, metric: str) -> dict[float, float]:
    return {row["round"]: row[metric] for row in run.rounds if metric in row}
