"""Base class and registry of the study figures, and what they have in common."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.configuration import expanded
from bfl.experiments.results.figures.base import png
from bfl.experiments.results.figures.style import (
    CHARACTERS_AN_INCH,
    COLORS,
    DASHES,
    drawable,
    new_figure,
    run_title,
    styled,
    wrapped,
)
from bfl.experiments.studies.folder import FIGURES, StudyFolder
from bfl.experiments.studies.gathering import StudyResults, gather
from bfl.experiments.studies.published import Key
from bfl.experiments.studies.run_result import RunResult
from bfl.experiments.studies.scale import ScaledStudy
from bfl.experiments.studies.study import Cell, Choice, FigureSpec, Run
from bfl.experiments.studies.table import mean_and_spread
from bfl.registry import Component, Registry

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

PANELS_A_LINE = 4
"""Panels beside each other, at most."""

MARKERS = ("o", "s", "D", "^", "v", "P")
"""Markers that tell apart several numbers in one panel."""

LEAST_WIDTH, LEAST_HEIGHT = 6.0, 4.5
"""Inches that a figure is wide and high, at least."""

BAND = 0.18
"""Opacity of a band."""

LINE_OF_A_LEGEND = 0.6
"""Inches that the line before a legend's label and the room around it take."""

FEW_POINTS = 10
"""Up to so many points of a curve are marked."""


@dataclass(frozen=True)
class Curve:
    """A curve with its spread over the seeds.

    Attributes:
        x: (T,) abscissae.
        mean: (T,) means over the seeds.
        spread: (T,) spreads; NaN where there are fewer than two seeds.
    """

    x: npt.NDArray[np.float64]
    mean: npt.NDArray[np.float64]
    spread: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Overlay:
    """Data that a study's figure draws from.

    Attributes:
        results: What the study's runs have given.
        scaled: The study.
        spec: What the study says of the figure.
        rows: The rows that are shown.
        wanted: Which runs count.
        shows: Which results have what is drawn.
    """

    results: StudyResults
    scaled: ScaledStudy
    spec: FigureSpec
    rows: tuple[Choice, ...]
    wanted: Callable[[Run], bool]
    shows: Callable[[RunResult], bool] = lambda _: True

    @property
    def panels(self) -> tuple[Mapping[str, str], ...]:
        """The labels of each panel, of those that a run counts for."""
        counted = [run.labels.items() for run in self.scaled.runs if self.wanted(run)]
        panels = self.scaled.study.panels()
        return tuple(p for p in panels if any(p.items() <= labels for labels in counted))

    def runs(self, row: Choice, panel: Mapping[str, str]) -> list[RunResult]:
        """Return what is drawn of a row in a panel: its finished runs, or those that have begun.

        Both beside each other would make a step in their mean where the latter end.
        """
        return [result for _, result in self._drawn.get(_key(row, panel), ())]

    @cached_property
    def _drawn(self) -> Mapping[Key, Sequence[tuple[Run, RunResult]]]:
        """The runs that are drawn, with their results, by line."""
        shown = {_key(row, panel) for row in self.rows for panel in self.panels}
        found: dict[Key, list[tuple[Run, RunResult]]] = {key: [] for key in shown}
        for run in self.scaled.runs:
            result = self.results.curves(run.name)
            if result and run.cell.key in shown and self.wanted(run) and self.shows(result):
                found[run.cell.key].append((run, result))
        return {
            key: [pair for pair in pairs if pair[1].over] or pairs
            for key, pairs in found.items()
            if pairs
        }

    @cached_property
    def _values(self) -> Mapping[Key, Sequence[Mapping[str, Any]]]:
        """The configurations of the runs that are drawn, by line."""
        return {
            key: [expanded(run.values) for run, _ in pairs] for key, pairs in self._drawn.items()
        }

    @property
    def _seeds(self) -> list[int]:
        """The seeds of all runs that are drawn."""
        return sorted({int(each["seed"]) for found in self._values.values() for each in found})

    def name(self, row: Choice) -> str:
        """Return what a row is called in the legend: those of its labels in which rows differ.

        Where it is drawn with fewer seeds than the figure has, the name says so.
        """
        differing = {
            column
            for column in row.labels
            if len({other.labels[column] for other in self.rows}) > 1
        }
        name = drawable(" · ".join(row.labels[c] for c in row.labels if c in differing))
        counts = sorted({len(found) for panel in self.panels if (found := self.runs(row, panel))})
        if all(count == len(self._seeds) for count in counts):
            return name
        fewer = f"{' or '.join(map(str, counts))} of {len(self._seeds)} seeds"
        return f"{name} ({fewer})" if name else fewer

    def lines(self) -> Iterator[tuple[Choice, dict[str, Any]]]:
        """Yield the rows, each with the look of its line."""
        for index, row in enumerate(self.rows):
            color = COLORS[index % len(COLORS)]
            # A second round of the colours meets other dashes.
            dash = DASHES[(index + index // len(COLORS)) % len(DASHES)]
            yield row, {"color": color, "linestyle": dash, "label": self.name(row)}

    def average(self, curves: Sequence[Mapping[float, float]]) -> Curve:
        """Return the mean curve of several seeds, at every abscissa that all of them have.

        Where one of them ended, a mean over the others would go on with a step.
        """
        x = sorted(set.intersection(*map(set, curves)))
        values = [mean_and_spread([c[at] for c in curves], self.scaled.study.spread) for at in x]
        return Curve(
            np.array(x, dtype=np.float64),
            np.array([mean for mean, _ in values], dtype=np.float64),
            np.array([math.nan if s is None else s for _, s in values], dtype=np.float64),
        )

    def title(self) -> str:
        """Return what stands above the figure: what it is, the scale, what spreads are."""
        study = self.scaled.study
        several = any(len(found) > 1 for found in self._drawn.values())
        bands = f"\n± {study.spread.replace('-', ' ')} over the seeds" if several else ""
        lines = (self.spec.title or study.title, self.in_common(), self.scaled.said)
        return "\n".join(filter(None, lines)) + bands

    def in_common(self) -> str:
        """Return the data, the network and the clients that all runs drawn have, and the seeds."""
        values = [each for found in self._values.values() for each in found]
        same = {
            key: values[0][key]
            for key in ("dataset", "model", "inference", "clients")
            if values and all(each[key] == values[0][key] for each in values)
        }
        seeds = self._seeds
        title = run_title({key: value for key, value in same.items() if value})
        named = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}" if seeds else ""
        return " · ".join(filter(None, (title, named)))


def _key(row: Choice, panel: Mapping[str, str]) -> Key:
    return Cell({**row.labels, **panel}).key


class StudyFigure(Component):
    """One kind of figure of a study; its fields are settings in the study's file."""

    def draw(self, overlay: Overlay) -> MatplotlibFigure | None:
        """Return the figure, or None when no run has left what it shows.

        Raises:
            DataError: A file of a run is there but corrupt.
        """
        with styled():
            return self.compose(replace(overlay, shows=self.shows))

    @abstractmethod
    def shows(self, result: RunResult) -> bool:
        """Return whether a run has what the figure draws, so that its seed is one of it."""

    @abstractmethod
    def compose(self, overlay: Overlay) -> MatplotlibFigure | None:
        """Return what ``draw`` returns; a subclass writes this, under the style already set."""


study_figures: Registry[StudyFigure] = Registry("study figure", "bfl.experiments.studies.figures")


def draw_curve(axes: Axes, curve: Curve, look: Mapping[str, Any], highest: float) -> None:
    """Draw a curve and its band, of numbers that lie between 0 and ``highest``."""
    marker = "o" if curve.x.size <= FEW_POINTS else ""
    axes.plot(curve.x, curve.mean, marker=marker, markersize=3.0, **look)
    axes.fill_between(
        curve.x,
        np.maximum(curve.mean - curve.spread, 0.0),
        np.minimum(curve.mean + curve.spread, highest),
        color=look["color"],
        alpha=BAND,
        linewidth=0.0,
    )


def panel_grid(lines: int, columns: int) -> tuple[MatplotlibFigure, npt.NDArray[Any]]:
    """Return a figure and its axes, an array (lines, columns), that share their abscissa."""
    # Titles and legends take some of it from a single panel.
    width, height = max(LEAST_WIDTH, 1.0 + 2.6 * columns), max(LEAST_HEIGHT, 1.1 + 2.3 * lines)
    figure = new_figure(width, height)
    return figure, figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)


def finish(figure: MatplotlibFigure, overlay: Overlay) -> None:
    """Give a figure its title and one legend for all panels."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles and list(handles) != [""]:
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=_columns(list(handles), figure.get_figwidth()),
        )
    figure.suptitle(wrapped(overlay.title(), figure.get_figwidth()))


def _columns(labels: Sequence[str], width: float) -> int:
    """Return how many labels of a legend, four at most, go beside each other in so many inches."""
    longest = LINE_OF_A_LEGEND + max(map(len, labels)) / CHARACTERS_AN_INCH
    return max(1, min(4, len(labels), int(width / longest)))


def places(
    grid: npt.NDArray[Any], overlay: Overlay
) -> Iterator[tuple[int, Axes, Mapping[str, str]]]:
    """Yield each panel's number, axes and labels; axes that are left over are switched off."""
    for axes in grid.flat[len(overlay.panels) :]:
        axes.set_axis_off()
    for number, (axes, panel) in enumerate(zip(grid.flat, overlay.panels, strict=False)):
        yield number, axes, panel


def panel_title(panel: Mapping[str, str]) -> str:
    """Return what stands above a panel."""
    return drawable(" · ".join(panel.values()))


def draw_study(
    folder: StudyFolder,
    scaled: ScaledStudy,
    wanted: Callable[[Run], bool] = lambda _: True,
    places: Sequence[Path] = (),
) -> list[Path]:
    """Draw the figures that a study asks for, or one of each kind; return the PNG files.

    Args:
        folder: The study's folder.
        scaled: The study.
        wanted: Which runs count.
        places: Other folders with results.

    Raises:
        ConfigurationError: A result does not belong to the study as it stands, or two contradict
            each other.
        DataError: A result is corrupt.
        RunError: A figure cannot be written.
    """
    results = gather(folder, scaled.runs, places, wanted)
    specs = scaled.study.figures or [
        FigureSpec(name, name, "", rows=(), settings={}) for name in study_figures.names()
    ]
    written = []
    for spec in specs:
        rows = tuple(row for row in scaled.study.rows if spec.shows(row.labels))
        overlay = Overlay(results, scaled, spec, rows, wanted)
        figure = study_figures.create(spec.kind, spec.settings).draw(overlay)
        if figure is not None:
            written.append(folder.write(f"{FIGURES}/{spec.name}.png", png(figure)))
    return written
