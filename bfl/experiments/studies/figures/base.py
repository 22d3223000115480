"""Base class of the study figures, and selection of their runs by row and panel."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from bfl.configuration import expanded
from bfl.evaluation.regression import ERROR
from bfl.experiments.results.figures.style import (
    CHARACTERS_AN_INCH,
    drawable,
    look_of,
    new_figure,
    png,
    run_title,
    styled,
    wrapped,
)
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.gathering import OpenedStudy
from bfl.experiments.studies.published import Key
from bfl.experiments.studies.run_result import RunResult
from bfl.experiments.studies.study import Choice, FigureSpec, Run, Study, study_figures
from bfl.experiments.studies.table import mean_and_spread
from bfl.registry import Component

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

MARKERS = ("o", "s", "D", "^", "v", "P")
"""Markers of different numbers in one panel."""

LEAST_WIDTH, LEAST_HEIGHT = 6.0, 4.5
"""The least width and height of a figure in inches."""

BAND = 0.18
"""Opacity of a band."""

LINE_OF_A_LEGEND = 0.6
"""Width in inches of a legend's line and the space around it."""

FEW_POINTS = 10
"""The most points of a curve that are marked."""

UNITS = {
    "accuracy": "%",
    "negative-log-likelihood": "nats",
    ERROR: "the target's unit",
    "continuous-ranked-probability-score": "the target's unit",
}
"""Units of numbers whose names end so."""

Drawn = Mapping[Key, Sequence[tuple[Run, RunResult]]]


@dataclass(frozen=True)
class Overlay:
    """A study's rows, overlaid in a panel for each combination of all axes except the seeds.

    Attributes:
        opened: The study.
        spec: The study's description of the figure.
        shows: Returns whether a result has the numbers to draw.
    """

    opened: OpenedStudy
    spec: FigureSpec
    shows: Callable[[RunResult], bool] = lambda _: True

    @property
    def study(self) -> Study:
        """The study."""
        return self.opened.study

    @property
    def rows(self) -> list[Choice]:
        """The rows to draw."""
        return [row for row in self.study.rows if self.spec.shows(row.labels)]

    @property
    def panels(self) -> tuple[Choice, ...]:
        """The panels with a selected run."""
        counted = [run.labels.items() for run in self.opened.runs]
        panels = self.study.panels()
        return tuple(p for p in panels if any(p.labels.items() <= labels for labels in counted))

    def runs(self, row: Choice, panel: Choice) -> list[RunResult]:
        """Return a row's finished runs in a panel; without any, its begun runs.

        Together their mean would have a step where the begun runs end.
        """
        return [result for _, result in self.drawn.get(Choice.of((row, panel)).key, ())]

    @cached_property
    def drawn(self) -> Drawn:
        """The runs to draw with their results, by line; lines without runs are left out."""
        shown = {Choice.of((row, panel)).key for row in self.rows for panel in self.panels}
        found: dict[Key, list[tuple[Run, RunResult]]] = {key: [] for key in shown}
        results = self.opened.results
        for run in self.opened.runs:
            result = results.finished.get(run.name) or results.begun.get(run.name)
            if result and run.cell.key in shown and self.shows(result):
                found[run.cell.key].append((run, result))
        return {
            key: [pair for pair in pairs if pair[1].over] or pairs
            for key, pairs in found.items()
            if pairs
        }

    @cached_property
    def _values(self) -> Sequence[Mapping[str, Any]]:
        """The configurations of the runs to draw."""
        return [expanded(run.values) for pairs in self.drawn.values() for run, _ in pairs]

    @property
    def _seeds(self) -> list[int]:
        return sorted({int(each["seed"]) for each in self._values})

    def name(self, row: Choice) -> str:
        """Return a row's name in the legend: the labels that differ between rows.

        If the row has fewer seeds than the figure, its name says so.
        """
        differing = [c for c in row.labels if len({other.labels[c] for other in self.rows}) > 1]
        name = drawable(" · ".join(row.labels[column] for column in differing))
        counts = sorted({len(found) for panel in self.panels if (found := self.runs(row, panel))})
        if all(count == len(self._seeds) for count in counts):
            return name
        fewer = f"{' or '.join(map(str, counts))} of {len(self._seeds)} seeds"
        return f"{name} ({fewer})" if name else fewer

    def lines(self) -> Iterator[tuple[Choice, dict[str, Any]]]:
        """Yield the rows, each with the style of its line."""
        for index, row in enumerate(self.rows):
            yield row, {**look_of(index), "label": self.name(row)}

    def mean_and_spread(self, values: Sequence[float]) -> tuple[float | None, float | None]:
        """Return the mean of some numbers and their spread over the seeds."""
        return mean_and_spread(values, self.study.spread)

    def draw_curves(
        self,
        axes: Axes,
        curves: Sequence[Mapping[float, float]],
        look: Mapping[str, Any],
        highest: float,
    ) -> None:
        """Draw the mean curve of several seeds and its band, of numbers from 0 to ``highest``.

        Only abscissas of all curves are drawn, as the mean would have a step where one ends.
        """
        x = sorted(set.intersection(*map(set, curves)))
        values = [self.mean_and_spread([curve[at] for curve in curves]) for at in x]
        mean, spread = np.array(values, dtype=np.float64).reshape(-1, 2).T
        axes.plot(x, mean, marker="o" if len(x) <= FEW_POINTS else "", markersize=3.0, **look)
        axes.fill_between(
            x,
            np.maximum(mean - spread, 0.0),
            np.minimum(mean + spread, highest),
            color=look["color"],
            alpha=BAND,
            linewidth=0.0,
        )

    @property
    def several(self) -> bool:
        """True if a line is of more than one run."""
        return any(len(found) > 1 for found in self.drawn.values())

    def title(self) -> str:
        """Return the figure's title: subject, common settings, scale and kind of spread."""
        study = self.study
        bands = f"\n± {study.spread.replace('-', ' ')} over the seeds" if self.several else ""
        lines = (self.spec.title or study.title, self._in_common(), study.said)
        return "\n".join(filter(None, lines)) + bands

    def _in_common(self) -> str:
        """Return the data, network and number of clients common to all runs, and the seeds."""
        first, seeds = self._values[0] if self._values else {}, self._seeds
        keys = [key for key in ("dataset", "model", "inference", "clients") if first.get(key)]
        same = [key for key in keys if all(each[key] == first[key] for each in self._values)]
        title = run_title({key: first[key] for key in same})
        named = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}" if seeds else ""
        return " · ".join(filter(None, (title, named)))

    def grid(self, lines: int, columns: int) -> tuple[MatplotlibFigure, npt.NDArray[Any]]:
        """Return a figure and its axes, an array (lines, columns), that share their abscissa."""
        # The least sizes leave room for the titles and the legend of a single panel.
        width, height = max(LEAST_WIDTH, 1.0 + 2.6 * columns), max(LEAST_HEIGHT, 1.1 + 2.3 * lines)
        figure = new_figure(width, height)
        return figure, figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)

    def finish(self, figure: MatplotlibFigure) -> None:
        """Add the title and one legend for all panels."""
        handles: dict[str, Any] = {}
        for axes in figure.axes:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        width = figure.get_figwidth()
        if handles and list(handles) != [""]:
            # At most four labels in a line, if they fit.
            longest = LINE_OF_A_LEGEND + max(map(len, handles)) / CHARACTERS_AN_INCH
            columns = max(1, min(4, len(handles), int(width / longest)))
            figure.legend(
                handles.values(), handles.keys(), loc="outside lower center", ncols=columns
            )
        figure.suptitle(wrapped(self.title(), width))


def panel_title(panel: Choice) -> str:
    """Return the title of a panel."""
    return drawable(" · ".join(panel.labels.values()))


class StudyFigure(Component):
    """A kind of study figure; its fields are settings in the study's file.

    Attributes:
        panels_a_line: The most panels in a line.
    """

    panels_a_line: ClassVar[int] = 4

    def draw(self, overlay: Overlay) -> MatplotlibFigure | None:
        """Return the figure, or None if no run has the numbers that it shows.

        Raises:
            DataError: A file of a run is corrupt.
        """
        overlay = replace(overlay, shows=self.shows)
        if not overlay.drawn:
            return None
        with styled():
            return self.compose(overlay)

    def numbers(self) -> Sequence[str]:
        """Return what it draws, by names that a column of a table may have."""
        return ()

    def caption(self, overlay: Overlay) -> str:
        """Return the caption: a sentence with the unit and the better side."""
        words = {True: ", higher is better", False: ", lower is better", None: ""}
        told = [": ".join(filter(None, (overlay.spec.title, self.summary().rstrip("."))))]
        for name in self.numbers():
            unit = next((f" in {unit}" for end, unit in UNITS.items() if name.endswith(end)), "")
            told.append(f"{name}{unit}{words[Column(metric=name).higher_is_better]}")
        if overlay.several:
            told.append(f"± {overlay.study.spread.replace('-', ' ')} over the seeds")
        return f"{'; '.join(told)}."

    @abstractmethod
    def shows(self, result: RunResult) -> bool:
        """Return whether a run has the numbers that the figure draws."""

    def compose(self, overlay: Overlay) -> MatplotlibFigure:
        """Return the figure, drawn panel by panel; the style is already set."""
        panels, columns = overlay.panels, min(self.panels_a_line, len(overlay.panels))
        figure, grid = overlay.grid(-(-len(panels) // columns), columns)
        self.size(figure, len(overlay.rows), grid.shape)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        for number, (axes, panel) in enumerate(zip(grid.flat, panels, strict=False)):
            axes.set_title(panel_title(panel))
            self.draw_panel(axes, overlay, panel, first=number % columns == 0)
        overlay.finish(figure)
        return figure

    def draw_panel(self, axes: Axes, overlay: Overlay, panel: Choice, *, first: bool) -> None:
        """Draw a panel; the first one of a line has the ordinate's label."""
        raise NotImplementedError

    def size(self, figure: MatplotlibFigure, rows: int, grid: tuple[int, ...]) -> None:
        """Change the size of a figure with ``rows`` rows and a ``grid`` of panels."""


OF_NUMBERS: Mapping[str, Mapping[str, Any]] = {
    "learning-curves": {"metric": ERROR},
    "numbers": {"metrics": [ERROR]},
    "client-numbers": {"metric": f"global-{ERROR}"},
}
"""Settings of the default figures for regression, which has no accuracy."""


def draw_study(opened: OpenedStudy) -> list[Path]:
    """Draw a study's figures, by default one of each kind; return the PNG files.

    Raises:
        RunError: A figure cannot be written; and the errors of ``study_table``.
    """
    return [
        opened.folder.write(f"figures/{name}.png", png(figure))
        for name, figure, _ in drawings(opened)
    ]


def drawings(opened: OpenedStudy) -> Iterator[tuple[str, MatplotlibFigure, str]]:
    """Yield the figures that a study asks for, or one of each kind, with names and captions.

    Raises the errors of ``study_table``.
    """
    numbers = any(run.values.get("task") == "regression" for run in opened.study.runs())
    of_each_kind = [
        FigureSpec(name=kind, kind=kind, **(OF_NUMBERS.get(kind, {}) if numbers else {}))
        for kind in study_figures.names()
    ]
    for spec in opened.study.figures or of_each_kind:
        overlay = Overlay(opened, spec)
        kind = study_figures.create(spec.kind, spec.settings)
        figure = kind.draw(overlay)
        if figure is not None:
            yield spec.name, figure, kind.caption(overlay)
