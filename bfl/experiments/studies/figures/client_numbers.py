"""Results of each client's models on its own test data, client by client."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np
from pydantic import Field, ValidationInfo, field_validator, model_validator

from bfl.errors import unknown_name
from bfl.experiments.results.evaluated_clients import CLIENTS, names_of_means
from bfl.experiments.results.figures.style import COLORS, DASHES, percent_axis
from bfl.experiments.studies.figures.base import (
    MARKERS,
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
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

PANELS_A_LINE = 2
"""Panels beside each other, at most: ten clients with several rows need some room."""

WIDTH = 0.6
"""The room that the rows of one client share, where clients are 1 apart."""


def numbers_of_clients() -> tuple[str, ...]:
    """Return the names of what each client may have, as ``clients.json`` has them."""
    return tuple(name.removeprefix(CLIENTS) for name in names_of_means())


@study_figures.register("client-numbers")
class ClientNumbers(StudyFigure):
    """A number of each client, as mean and spread over the seeds, and a line at the clients' mean.

    Of finished runs in which clients have test data of their own; in one panel a partition. Rows
    whose clients have no such number are drawn by ``otherwise``, which the legend says, and those
    that have neither are named in it: a client without a personal model has no better of two.

    Reference:
        Yang et al. (2023), Tables 2 and 3: each client's best accuracy.
    """

    metric: str = Field(
        "global-accuracy", description="what is drawn of each client, by its name in clients.json"
    )
    otherwise: str = Field(
        "", description="what is drawn of clients that have no such number; empty: nothing"
    )

    @field_validator("metric", "otherwise")
    @classmethod
    def _is_known(cls, metric: str, field: ValidationInfo) -> str:
        nothing = field.field_name == "otherwise" and not metric
        if not nothing and metric not in numbers_of_clients():
            raise ValueError(unknown_name("number of a client", metric, numbers_of_clients()))
        return metric

    @model_validator(mode="after")
    def _has_one_axis(self) -> Self:
        if self.otherwise and _quantity(self.otherwise) != _quantity(self.metric):
            raise ValueError(
                f"otherwise is {self.otherwise!r} besides metric = {self.metric!r}, which share an "
                f"axis; allowed: a number whose name ends in '{_quantity(self.metric)}'"
            )
        return self

    def shows(self, result: RunResult) -> bool:
        """Return whether the run is over and one of its clients has the number."""
        return result.over and bool(self._metric_of([result]))

    def _metric_of(self, runs: Sequence[RunResult]) -> str:
        """Return which number is drawn of a row's runs; empty where their clients have neither."""
        had = {name for run in runs for own in run.clients.values() for name in own}
        return next((name for name in (self.metric, self.otherwise) if name in had), "")

    def compose(self, overlay: Overlay) -> MatplotlibFigure | None:
        """Return the figure, or None when no finished run has such a number."""
        from matplotlib.ticker import MaxNLocator

        columns = min(PANELS_A_LINE, len(overlay.panels))
        figure, grid = panel_grid(-(-len(overlay.panels) // columns), columns)
        figure.set_figwidth(max(figure.get_figwidth(), 1.0 + 4.2 * columns))
        offsets = WIDTH * ((np.arange(len(overlay.rows)) + 0.5) / max(1, len(overlay.rows)) - 0.5)
        drawn = False
        for number, axes, panel in places(grid, overlay):
            for place, (row, look) in enumerate(overlay.lines()):
                runs, label = overlay.runs(row, panel), str(look["label"])
                metric = self._metric_of(runs)
                if metric:
                    values, said = _by_client(runs, metric), self._label(label, metric)
                    self._row(axes, overlay, values, place, offsets[place], said)
                    drawn = True
                elif not any(overlay.runs(row, each) for each in overlay.panels):
                    axes.plot([], [], linestyle="none", label=f"{label}: no such number")
            axes.set_title(panel_title(panel))
            axes.set_xlabel("client")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            if self.metric.endswith("accuracy"):
                percent_axis(axes.yaxis)
            if number % columns == 0:
                unit = " (%)" if self.metric.endswith("accuracy") else ""
                axes.set_ylabel(_words(self.metric) + unit)
        finish(figure, overlay)
        return figure if drawn else None

    def _label(self, label: str, metric: str) -> str:
        """Return what a row is called in the legend, with its number where that is another one."""
        return label if metric == self.metric else f"{label} ({_words(metric)})".lstrip()

    def _row(
        self,
        axes: Axes,
        overlay: Overlay,
        values: dict[int, list[float]],
        place: int,
        offset: float,
        label: str,
    ) -> None:
        """Draw a row's clients and, over all of them, its mean."""
        numbers = [mean_and_spread(own, overlay.scaled.study.spread) for own in values.values()]
        means = np.array([mean for mean, _ in numbers], dtype=np.float64)
        color = COLORS[place % len(COLORS)]
        axes.errorbar(
            np.array(list(values)) + offset,
            means,
            yerr=[math.nan if spread is None else spread for _, spread in numbers],
            fmt=MARKERS[place % len(MARKERS)],
            markersize=3.0,
            color=color,
            label=label,
        )
        dashes = DASHES[(place + place // len(COLORS)) % len(DASHES)]
        axes.axhline(means.mean(), color=color, linestyle=dashes, linewidth=0.7)


def _words(metric: str) -> str:
    return metric.replace("-", " ")


def _quantity(metric: str) -> str:
    """Return what a client's number measures: of ``last-meme-accuracy`` it is ``accuracy``."""
    return metric.split("-", 2)[-1]


def _by_client(runs: Iterable[RunResult], metric: str) -> dict[int, list[float]]:
    """Return each client's values, one for each run that has one, in the order of the clients."""
    values: dict[int, list[float]] = {}
    for run in runs:
        for client, numbers in run.clients.items():
            if metric in numbers:
                values.setdefault(int(client), []).append(float(numbers[metric]))
    return dict(sorted(values.items()))
