"""Retention curves, overlaid by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, field_validator

from bfl.errors import DataError, unknown_name
from bfl.evaluation.uncertainty import uncertainties
from bfl.experiments.results.figures.style import percent_axis
from bfl.experiments.studies.figures.base import (
    Overlay,
    StudyFigure,
    draw_curve,
    finish,
    panel_grid,
    panel_title,
    study_figures,
)
from bfl.experiments.studies.run_result import RunResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

ACCURACY = "accuracy"


def _default_rankings() -> list[str]:
    return ["predictive-entropy", "aleatoric", "epistemic"]


@study_figures.register("retention-curves")
class RetentionCurves(StudyFigure):
    """Accuracy against the share of the test data that is kept, by row.

    There is a line of panels for each uncertainty, and a column for each partition. A curve that
    climbs from right to left belongs to a model whose uncertainty knows where it errs.

    Reference:
        Fischer et al. (2024), Figs. 2, 4, 6 and 7; Filos et al. (2019).
    """

    by: list[str] = Field(
        default_factory=_default_rankings,
        min_length=1,
        description="the uncertainties by which data are discarded",
    )

    @field_validator("by")
    @classmethod
    def _are_known(cls, by: list[str]) -> list[str]:
        known = [u.name for u in uncertainties.classes() if u.retention]
        for name in by:
            if name not in known:
                raise ValueError(unknown_name("uncertainty", name, known))
        return by

    def shows(self, result: RunResult) -> bool:
        """Return whether the run was evaluated to the end."""
        return bool(result.retention)

    def compose(self, overlay: Overlay) -> MatplotlibFigure | None:
        """Return the figure, or None when no run was evaluated to the end."""
        figure, grid = panel_grid(len(self.by), len(overlay.panels))
        drawn = False
        for by, line in zip(self.by, grid, strict=True):
            for panel, axes in zip(overlay.panels, line, strict=True):
                for row, look in overlay.lines():
                    curves = [_curve(run, by) for run in overlay.runs(row, panel)]
                    if curves:
                        draw_curve(axes, overlay.average(curves), look, 1.0)
                        drawn = True
                axes.set_xlim(0.0, 1.0)
                percent_axis(axes.xaxis)
                percent_axis(axes.yaxis)
            line[0].set_ylabel(f"accuracy (%)\nby {by.replace('-', ' ')}")
        for panel, top, bottom in zip(overlay.panels, grid[0], grid[-1], strict=True):
            top.set_title(panel_title(panel))
            bottom.set_xlabel("data retained (%)")
        finish(figure, overlay)
        return figure if drawn else None


def _curve(run: RunResult, by: str) -> dict[float, float]:
    """Return accuracy by the share retained."""
    try:
        values = run.retention["curves"][ACCURACY][by]["value"]
        return dict(zip(run.retention["fraction"], values, strict=True))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{run.source}: no retention curve: {error!r}") from error
