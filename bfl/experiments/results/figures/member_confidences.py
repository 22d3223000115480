"""Right and wrong predictions of an ensemble's members, by confidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bfl.errors import DataError
from bfl.experiments.results.figures.base import Figure, figures
from bfl.experiments.results.figures.style import COLORS, new_figure, percent_axis, set_title
from bfl.experiments.results.run_folder import ENSEMBLE, RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

CONFIDENCES = "confidences"


@figures.register("member-confidences")
class MemberConfidences(Figure):
    """Histograms of the test examples that members predict right and wrong, along the confidence.

    A panel for the clients' models and one for the samples, means over those of each kind. Of
    models that know what they do not know, the wrong ones lie on the left.

    Reference:
        Chen and Chao (2021), FedBE, Figs. 1 (c) and 9.
    """

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure, or None when the run has evaluated no samples and no clients."""
        found = folder.ensemble().get(CONFIDENCES, {}) if folder.holds(ENSEMBLE) else {}
        if not found:
            return None
        figure = new_figure(1.0 + 2.8 * len(found), 3.2)
        panels = figure.subplots(1, len(found), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (kind, counts) in zip(panels, sorted(found.items()), strict=True):
            try:
                right, wrong = (np.array(counts[of], float) for of in ("right", "wrong"))
                edges = np.linspace(0.0, 1.0, right.size + 1)
                low, width = edges[:-1], np.diff(edges)
                axes.bar(low, right, width / 2, align="edge", color=COLORS[0], label="right")
                axes.bar(
                    low + width / 2, wrong, width / 2, align="edge", color=COLORS[1], label="wrong"
                )
            except (KeyError, TypeError, ValueError) as error:
                raise DataError(f"{folder.path / ENSEMBLE}: no histogram: {error!r}") from error
            axes.set_title(kind)
            axes.set_xlim(0.0, 1.0)
            percent_axis(axes.xaxis)
            axes.set_xlabel("confidence (%)")
            axes.set_ylabel("test examples of a model")
        panels[0].legend(loc="upper left", frameon=True, edgecolor="none")
        set_title(figure, "Confidences of an ensemble's members", folder)
        return figure
