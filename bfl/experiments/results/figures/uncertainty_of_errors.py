"""The uncertainty of right predictions next to that of wrong ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.evaluation.uncertainty import uncertainties
from bfl.experiments.results.figures.base import Figure, figures
from bfl.experiments.results.figures.style import (
    COLORS,
    label_panels,
    new_figure,
    percent_axis,
    set_title,
)
from bfl.experiments.results.run_folder import PREDICTIONS, RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

BINS = 24


@figures.register("uncertainty-of-errors")
class UncertaintyOfErrors(Figure):
    """Uncertainties of the right predictions and of the wrong ones, by measure.

    The number in a panel is the area under the receiver operating characteristic: the probability
    that a wrong prediction is more uncertain than a right one, ties counted half. 0.5 says nothing
    about errors, 1 tells all of them.

    Reference:
        Hendrycks and Gimpel (2017), "A baseline for detecting misclassified and out-of-distribution
        examples in neural networks", section 2; Hanley and McNeil (1982) (the area as a
        probability).
    """

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure, or None when the run was not evaluated to the end."""
        if not folder.holds(PREDICTIONS):
            return None
        predictions, labels = folder.predictions()
        wrong = predictions.predicted != labels
        shown = [u for u in uncertainties.classes() if u.retention]
        figure = new_figure(0.6 + 2.7 * len(shown), 3.4)
        panels = figure.subplots(1, len(shown), squeeze=False)[0]
        for axes, uncertainty in zip(panels, shown, strict=True):
            _panel(axes, uncertainty().measure(predictions), wrong, uncertainty.name)
            axes.set_ylabel("right, or wrong, predictions (%)")
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=2)
        label_panels(*panels)
        set_title(figure, "Uncertainty of right and of wrong predictions of test examples", folder)
        return figure


def error_detection(uncertainty: npt.ArrayLike, wrong: npt.ArrayLike) -> float | None:
    """Return the probability that a wrong prediction is more uncertain than a right one.

    It is the area under the receiver operating characteristic, ties counted half; None where all
    predictions are right, or all are wrong.

    Args:
        uncertainty: (N,) uncertainties.
        wrong: (N,) whether the prediction is wrong.

    Example:
        >>> error_detection([0.1, 0.2, 0.2, 0.9], [False, False, True, True])
        0.875
    """
    from scipy.stats import rankdata

    errors = np.asarray(wrong, bool)
    count, others = int(errors.sum()), int((~errors).sum())
    if not count or not others:
        return None
    ranks = rankdata(np.asarray(uncertainty, np.float64))
    return float((ranks[errors].sum() - count * (count + 1) / 2) / (count * others))


def _panel(axes: Axes, values: npt.NDArray[Any], wrong: npt.NDArray[Any], name: str) -> None:
    """Draw two histograms, each as shares of its own predictions."""
    from matplotlib.ticker import MaxNLocator

    top = float(values.max())
    edges = np.linspace(0.0, top if top > 0 else 1.0, BINS + 1).tolist()
    groups = ((~wrong, "right", COLORS[0]), (wrong, "wrong", COLORS[1]))
    for chosen, what, color in groups:
        count = int(chosen.sum())
        weights = np.full(count, 1.0 / max(count, 1))
        label = f"{what} ({count:,})"
        axes.hist(
            values[chosen], edges, weights=weights, color=color, alpha=0.25, histtype="stepfilled"
        )
        axes.hist(values[chosen], edges, weights=weights, color=color, histtype="step", label=label)
    area = error_detection(values, wrong)
    axes.set_title("no errors" if area is None and not wrong.any() else _said(area), loc="right")
    axes.set_xlabel(name.replace("-", " "))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    percent_axis(axes.yaxis)


def _said(area: float | None) -> str:
    return "only errors" if area is None else f"AUROC {area:.3f}"
