"""Accuracy, NLL and calibration error against the strength of corruptions."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

from bfl.errors import DataError
from bfl.experiments.results.figures.base import Figure, figures
from bfl.experiments.results.figures.style import (
    COLORS,
    DASHES,
    label_panels,
    new_figure,
    percent_axis,
    set_title,
)
from bfl.experiments.results.file_names import CORRUPTIONS
from bfl.experiments.results.foreign import METRICS
from bfl.experiments.results.run_folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure


@figures.register("corruptions")
class CorruptionsFigure(Figure):
    """Accuracy, likelihood and calibration as test images are corrupted more and more.

    Strength 0 are the test images themselves. A network that knows what it does not know becomes
    less certain as it becomes less accurate, and its calibration error stays low.

    Reference:
        Ovadia et al. (2019), "Can you trust your model's uncertainty? Evaluating predictive
        uncertainty under dataset shift", Fig. 1; Hendrycks and Dietterich (2019).
    """

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure, or None when the run was not shown corrupted images."""
        if not folder.holds(CORRUPTIONS):
            return None
        content = folder.read_json(CORRUPTIONS)
        figure = new_figure(9.0, 3.4)
        panels = figure.subplots(1, len(METRICS), sharex=True)
        try:
            for panel, metric in zip(panels, METRICS, strict=True):
                looks = zip(content.items(), cycle(COLORS), cycle(DASHES), strict=False)
                for (name, values), color, dash in looks:
                    panel.plot(values[metric], color=color, linestyle=dash, label=name)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"{folder.path / CORRUPTIONS} is corrupt: {error!r}") from error
        units = (" (%)", " (nats)", " (%)")
        for panel, metric, unit in zip(panels, METRICS, units, strict=True):
            panel.set_xlabel("strength")
            panel.set_ylabel(metric.replace("-", " ") + unit)
            if "%" in unit:
                percent_axis(panel.yaxis)
        panels[1].legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=len(content))
        label_panels(*panels)
        set_title(figure, "Corrupted test images", folder)
        return figure
