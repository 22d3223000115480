"""Figure of the final predictions of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bfl.evaluation.regression import LEVEL
from bfl.experiments.results.figures import Figure, figures
from bfl.experiments.results.figures.style import (
    COLORS,
    FAINT,
    INK,
    label_panels,
    new_figure,
    percent_axis,
    set_title,
)
from bfl.experiments.results.run_folder import PREDICTED_NUMBERS, RunFolder
from bfl.texts import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

SHOWN = 200
"""The most test examples shown, evenly spaced."""

LEVELS = np.linspace(0.0, 1.0, 41)


@figures.register("predicted-numbers")
class PredictedNumbers(Figure):
    """Predicted against true numbers with intervals, and the share of targets within intervals.

    The second panel has the share of targets within central intervals of each probability. A line
    below the diagonal is overconfident.

    Reference:
        Kuleshov et al. (2018), "Accurate uncertainties for deep learning using calibrated
        regression", section 3.5.
    """

    needs = PREDICTED_NUMBERS

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure."""
        predicted, targets = folder.predicted_numbers()
        figure = new_figure(7.6, 4.2)
        left, right = figure.subplots(1, 2)
        some = np.arange(0, targets.size, -(-targets.size // SHOWN))
        shown = predicted.take(some)
        low, high = shown.interval
        left.vlines(
            targets[some], low, high, color=FAINT, linewidth=0.6, label=f"{LEVEL:.0%} interval"
        )
        left.scatter(
            targets[some],
            shown.mean,
            8,
            color=COLORS[0],
            label=f"mean, {some.size} of them",
            zorder=3,
        )
        ends = [targets.min(), targets.max()]
        left.plot(ends, ends, color=INK, linewidth=1.0, linestyle="--")
        left.set(xlabel="true number", ylabel="predicted number")
        left.legend()
        # A target is within the central interval of probability p if 2 |F(y) − ½| ≤ p.
        place = 2.0 * np.abs(predicted.distribution(targets) - 0.5)
        right.plot([0, 1], [0, 1], color=INK, linewidth=1.0, linestyle="--", label="calibrated")
        inside = [(place <= level).mean() for level in LEVELS]
        right.plot(LEVELS, inside, color=COLORS[0], label="test examples")
        right.set(xlabel="probability of the interval (%)", ylabel="targets within it (%)")
        percent_axis(right.xaxis)
        percent_axis(right.yaxis)
        right.legend()
        label_panels(left, right)
        error = np.sqrt(np.mean((predicted.mean - targets) ** 2))
        what = f"Predicted numbers · RMSE {error:.4g}, {counted(targets.size, 'test example')}"
        set_title(figure, what, folder)
        return figure
