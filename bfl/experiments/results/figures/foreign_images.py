"""Foreign images next to test images, by one score."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from bfl.errors import DataError
from bfl.experiments.results.figures.base import Figure, figures
from bfl.experiments.results.figures.style import (
    COLORS,
    DASHES,
    FAINT,
    new_figure,
    percent_axis,
    set_title,
)
from bfl.experiments.results.file_names import FOREIGN
from bfl.experiments.results.foreign import QUANTILES
from bfl.experiments.results.run_folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure


@figures.register("foreign-images")
class ForeignImagesFigure(Figure):
    """The share of test images, and of each foreign source's, below a score.

    A source whose line is far to the right of the test images' is told from them; its AUROC is the
    probability that a foreign image has the higher score of two.

    Reference:
        Hendrycks and Gimpel (2017), "A baseline for detecting misclassified and out-of-distribution
        examples in neural networks", section 2.
    """

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure, or None when the run was not shown foreign images."""
        if not folder.holds(FOREIGN):
            return None
        content = folder.read_json(FOREIGN)
        figure = new_figure(4.8, 4.0)
        axes = figure.subplots()
        looks = zip(cycle(COLORS), cycle(DASHES))
        try:
            score, test = content["score"], np.asarray(content["test"], np.float64)
            axes.plot(test, QUANTILES, color=FAINT, linewidth=2.0, label="test images")
            for (name, source), (color, dash) in zip(
                content["sources"].items(), looks, strict=False
            ):
                area = source["uncertainties"][score]["auroc"]
                label = f"{name}, {'near' if source['near'] else 'far'} (AUROC {area:.3f})"
                axes.plot(source["quantiles"], QUANTILES, color=color, linestyle=dash, label=label)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{folder.path / FOREIGN} is corrupt: {error!r}") from error
        # Scores of foreign images may be thousands of times those of test images.
        axes.set_xscale("symlog", linthresh=max(1e-3, float(np.ptp(test)) / 2))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel(score.replace("-", " ") + (" (nats)" if score == "feature-density" else ""))
        axes.set_ylabel("images below that score (%)")
        percent_axis(axes.yaxis)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))
        set_title(figure, "Foreign images against test images", folder)
        return figure
