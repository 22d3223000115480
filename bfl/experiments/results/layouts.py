"""The features of several runs in the plane, one panel for each run and set of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bfl.evaluation.prediction.predictions import FloatArray
from bfl.experiments.results.figures.base import png
from bfl.experiments.results.figures.style import (
    COLORS,
    drawable,
    names_of_classes,
    new_figure,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes


MARKERS = ("o", "^", "s", "D", "v", "P")
"""With as many colours, 36 classes differ."""


SIDE = 3.0
"""Inches that a panel is wide."""


CHARACTERS = 40
"""Up to so many characters stand in one line above a panel."""


@dataclass(frozen=True)
class Layout:
    """Layout of one panel.

    Attributes:
        run: What the run is called.
        images: What the images are called, and what they are coloured by.
        places: Places (N, 2) in the plane.
        groups: (N,) the class that colours each of them.
        silhouette: How well the classes' features are apart.
    """

    run: str
    images: str
    places: FloatArray
    groups: npt.NDArray[np.int64]
    silhouette: float


def draw_layouts(rows: Sequence[Sequence[Layout]], class_names: Sequence[str]) -> bytes:
    """Return a PNG of layouts, a row for each run.

    Args:
        rows: The layouts; all rows have as many.
        class_names: One name per class.
    """
    shown = sorted({int(group) for row in rows for panel in row for group in panel.groups})
    with styled():
        figure = new_figure(max(4.5, SIDE * len(rows[0])), (SIDE + 0.3) * len(rows) + 0.8)
        panels = figure.subplots(len(rows), len(rows[0]), squeeze=False)
        for line, row in zip(panels, rows, strict=True):
            for axes, layout in zip(line, row, strict=True):
                _draw(axes, layout, shown)
        handles = [_points(panels[0, 0], np.empty((0, 2)), group) for group in shown]
        names = names_of_classes(class_names)
        figure.legend(
            handles,
            [names[group] for group in shown],
            loc="outside lower center",
            ncols=min(len(shown), 5),
        )
        return png(figure)


def _draw(axes: Axes, layout: Layout, groups: Sequence[int]) -> None:
    for group in groups:
        _points(axes, layout.places[layout.groups == group], group)
    lines = [
        *wrap(drawable(layout.run), CHARACTERS),
        *wrap(drawable(layout.images), CHARACTERS),
        f"silhouette {layout.silhouette:.3f}",
    ]
    axes.set_title("\n".join(lines))
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)


def _points(axes: Axes, places: FloatArray, group: int) -> Artist:
    """Draw a class, and return what stands for it in the legend."""
    return axes.scatter(
        places[:, 0],
        places[:, 1],
        s=9.0,
        color=COLORS[group % len(COLORS)],
        marker=MARKERS[group // len(COLORS) % len(MARKERS)],
        linewidths=0.0,
    )
