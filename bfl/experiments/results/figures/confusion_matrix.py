"""Confusion matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.experiments.results.figures.base import Figure, figures
from bfl.experiments.results.figures.style import (
    INK,
    class_names,
    names_of_classes,
    new_figure,
    percent_axis,
    set_title,
)
from bfl.experiments.results.run_folder import PREDICTIONS, RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

WRITTEN = 20
"""Up to so many classes have their numbers written into the cells, and all their names besides."""


@figures.register("confusion-matrix")
class ConfusionMatrix(Figure):
    """Test examples by true and predicted class; the colour is the share of a row.

    Reference:
        Kohavi and Provost (1998), "Glossary of terms", Machine Learning 30.
    """

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure, or None when the run was not evaluated to the end."""
        if not folder.holds(PREDICTIONS):
            return None
        predictions, labels = folder.predictions()
        counts = confusion(labels, predictions.predicted, predictions.classes)
        of_class = counts.sum(axis=1, keepdims=True)
        share = counts / np.maximum(of_class, 1)
        side = 2.2 + min(8.0, 0.42 * len(counts))
        figure = new_figure(max(side + 0.9, 4.6), max(side, 3.6))
        axes = figure.subplots()
        image = axes.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0, interpolation="nearest")
        axes.grid(visible=False)
        axes.set_xlabel("predicted class")
        axes.set_ylabel("true class")
        _ticks(axes, names_of_classes(class_names(folder)), len(counts))
        if len(counts) <= WRITTEN:
            _write(axes, counts, share)
        bar = figure.colorbar(image, label="share of the true class (%)")
        percent_axis(bar.ax.yaxis)
        right = int(np.trace(counts))
        title = f"Confusion matrix · {right:,} of {counts.sum():,} test examples right"
        set_title(figure, title, folder)
        return figure


def confusion(labels: npt.ArrayLike, predicted: npt.ArrayLike, classes: int) -> npt.NDArray[Any]:
    """Return the numbers (C, C) of examples by true class (row) and predicted class (column).

    Example:
        >>> confusion([0, 0, 1, 1], [0, 1, 1, 1], 2).tolist()
        [[1, 1], [0, 2]]
    """
    counts = np.zeros((classes, classes), np.int64)
    np.add.at(counts, (np.asarray(labels), np.asarray(predicted)), 1)
    return counts


def _ticks(axes: Axes, names: list[str], classes: int) -> None:
    from matplotlib.ticker import MaxNLocator

    if classes > WRITTEN or len(names) != classes:
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True))
        return
    long = max(map(len, names)) > 2
    axes.set_xticks(
        range(classes), names, rotation=45 if long else 0, ha="right" if long else "center"
    )
    axes.set_yticks(range(classes), names)


def _write(axes: Axes, counts: npt.NDArray[Any], share: npt.NDArray[Any]) -> None:
    """Write the numbers into their cells, where they can be read on both ends of the colours."""
    for (true, predicted), count in np.ndenumerate(counts):
        if count:
            color = "white" if share[true, predicted] > 0.5 else INK
            axes.text(
                predicted, true, str(count), ha="center", va="center", color=color, fontsize=6.5
            )
