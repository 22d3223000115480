"""Reliability diagram."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bfl.evaluation.metrics.expected_calibration_error import (
    CalibrationBins,
    ExpectedCalibrationError,
)
from bfl.experiments.results.figures.base import Figure, figures
from bfl.experiments.results.figures.style import (
    COLORS,
    FAINT,
    INK,
    new_figure,
    percent_axis,
    set_title,
)
from bfl.experiments.results.run_folder import CONFIG, PREDICTIONS, RunFolder
from bfl.registry import kebab

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure


@figures.register("reliability-diagram")
class ReliabilityDiagram(Figure):
    """Accuracy against confidence by bins of confidence, over the histogram of the confidences.

    Bars below the diagonal are overconfident. The bins are those of the expected calibration error
    in the title, with the run's ``calibration-bins``.

    Reference:
        Guo et al. (2017), "On calibration of modern neural networks", Fig. 1.
    """

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure, or None when the run was not evaluated to the end."""
        if not folder.holds(PREDICTIONS):
            return None
        bins = _metric(folder).bins(*folder.predictions())
        figure = new_figure(4.2, 5.4)
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
        _accuracies(upper, bins)
        _histogram(lower, bins)
        error = f"ECE {100 * bins.error:.2f}% ({bins.count.size} bins)"
        set_title(figure, f"Reliability diagram · {error}", folder)
        return figure


def _metric(folder: RunFolder) -> ExpectedCalibrationError:
    """Return the calibration error with the run's number of bins."""
    config = folder.config() if folder.holds(CONFIG) else {}
    key = kebab("calibration_bins")
    return ExpectedCalibrationError(**{key: config[key]} if key in config else {})


def _accuracies(axes: Axes, bins: CalibrationBins) -> None:
    """Draw accuracy bars and, from their tops to the bins' confidences, the gaps."""
    filled = bins.count > 0
    left, width = bins.edges[:-1][filled], np.diff(bins.edges)[filled]
    accuracy, confidence = bins.accuracy[filled], bins.confidence[filled]
    axes.bar(
        left, accuracy, width, align="edge", color=COLORS[0], edgecolor="white", label="accuracy"
    )
    axes.bar(
        left,
        confidence - accuracy,
        width,
        bottom=accuracy,
        align="edge",
        facecolor="none",
        edgecolor=COLORS[1],
        hatch="////",
        linewidth=0.8,
        label="gap to mean confidence",
    )
    axes.plot([0, 1], [0, 1], color=INK, linewidth=1.0, linestyle="--", label="calibrated")
    axes.set_xlim(0.0, 1.0)
    axes.set_ylim(0.0, 1.0)
    percent_axis(axes.yaxis)
    axes.set_ylabel("accuracy (%)")
    axes.legend(loc="upper left", frameon=True, edgecolor="none")


def _histogram(axes: Axes, bins: CalibrationBins) -> None:
    """Draw shares and numbers of the examples by confidence, with mean confidence and accuracy."""
    share = bins.count / bins.count.sum()
    axes.bar(
        bins.edges[:-1], share, np.diff(bins.edges), align="edge", color=FAINT, edgecolor="white"
    )
    centres = (bins.edges[:-1] + bins.edges[1:]) / 2
    for centre, height, count in zip(centres, share, bins.count, strict=True):
        axes.annotate(
            f"{count}",
            (centre, height),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            va="bottom",
            rotation=90,
            fontsize=6,
        )
    axes.set_ylim(0.0, 1.3 * float(share.max()))  # room for the numbers
    filled = bins.count > 0
    looks = (("accuracy", bins.accuracy, "-"), ("confidence", bins.confidence, "--"))
    for (what, values, dash), color in zip(looks, COLORS, strict=False):
        mean = float(np.sum(values[filled] * share[filled]))
        axes.axvline(mean, color=color, linestyle=dash, label=f"mean {what} {100 * mean:.1f}%")
    # Below the axes, where no bar and no number can be.
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.3), ncols=2)
    percent_axis(axes.xaxis)
    percent_axis(axes.yaxis)
    axes.set_xlabel("confidence (%)")
    axes.set_ylabel("examples (%)")
