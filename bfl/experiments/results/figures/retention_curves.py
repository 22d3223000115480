"""Retention curves."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from bfl.errors import DataError
from bfl.experiments.results.figures.base import Figure, figures
from bfl.experiments.results.figures.style import (
    COLORS,
    DASHES,
    FAINT,
    label_panels,
    new_figure,
    percent_axis,
    set_title,
)
from bfl.experiments.results.run_folder import RETENTION, RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

ACCURACY = "accuracy"
LIKELIHOOD = "negative-log-likelihood"


@figures.register("retention-curves")
class RetentionCurves(Figure):
    """Accuracy and negative log-likelihood of the data retained when the most uncertain go.

    One line per uncertainty, with its area in the legend; the baseline is what discarding at random
    would give, and the oracle discards the errors first. A line that climbs from right to left
    belongs to an uncertainty that knows where the model errs.

    Reference:
        Fischer et al. (2024), section 3.3 and Figs. 2, 4, 6 and 7; Filos et al. (2019).
    """

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure, or None when the run was not evaluated to the end."""
        if not folder.holds(RETENTION):
            return None
        content = folder.retention()
        figure = new_figure(7.2, 4.6)
        left, right = figure.subplots(1, 2, sharex=True)
        try:
            fraction = np.asarray(content["fraction"], dtype=np.float64)
            accuracy = _draw(left, fraction, content["curves"][ACCURACY])
            _draw(right, fraction, content["curves"][LIKELIHOOD])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{folder.path / RETENTION} is corrupt: {error!r}") from error
        oracle = np.minimum(1.0, accuracy / fraction)
        left.plot(fraction, oracle, color=FAINT, linewidth=1.0, linestyle=":", label="oracle")
        percent_axis(left.yaxis)
        left.set_ylabel("accuracy (%)")
        right.set_ylabel("negative log-likelihood (nats)")
        # No corner of the panels is free for every run, so the legends go below the axes.
        for axes in (left, right):
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22))
        label_panels(left, right)
        set_title(figure, "Retention curves on the test data", folder)
        return figure


def _draw(axes: Axes, fraction: Any, curves: Mapping[str, Any]) -> float:
    """Draw the curves of one metric and its baseline; return the metric of all the data."""
    looks = zip(cycle(COLORS), cycle(DASHES))
    base = 0.0
    for (by, curve), (color, dash) in zip(curves.items(), looks, strict=False):
        label = f"{by.replace('-', ' ')} (area {curve['area']:.4f})"
        axes.plot(fraction, curve["value"], color=color, linestyle=dash, label=label)
        base = float(curve["value"][-1])
    axes.axhline(base, color=FAINT, linewidth=1.0, label=f"at random (area {base:.4f})", zorder=1)
    axes.set_xlim(0.0, 1.0)
    axes.set_xlabel("data retained (%)")
    percent_axis(axes.xaxis)
    return base
