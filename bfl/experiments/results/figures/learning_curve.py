"""Learning curve."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from bfl.evaluation.metrics import metrics
from bfl.experiments.results.figures.base import Figure, figures
from bfl.experiments.results.figures.style import (
    COLORS,
    INK,
    label_panels,
    new_figure,
    percent_axis,
    set_title,
)
from bfl.experiments.results.run_folder import CONFIG, RunFolder
from bfl.federation.client_metrics import TRAIN_DIVERGENCE_PER_EXAMPLE, TRAIN_LIKELIHOOD, recorded

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

ACCURACY = "accuracy"
LIKELIHOOD = "negative-log-likelihood"
FEW_ROUNDS = 30


@figures.register("learning-curve")
class LearningCurve(Figure):
    """Accuracy and negative log-likelihood of the global model after each evaluated round.

    The likelihood on the clients' training data, while they train, is drawn next to that on the
    test data; what training pays for the divergence from the prior, KL / N, has a panel of its own.

    Reference:
        Fischer et al. (2024), section 3.3 (the metrics).
    """

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure, or None when no round was evaluated."""
        rounds = folder.rounds()
        curves = {metric: _points(rounds, metric) for metric in (ACCURACY, LIKELIHOOD)}
        if not any(curves.values()):
            return None
        trained = _points(rounds, recorded(TRAIN_LIKELIHOOD))
        diverged = _points(rounds, recorded(TRAIN_DIVERGENCE_PER_EXAMPLE))
        panels = 3 if any(value for _, value in diverged) else 2
        figure = new_figure(3.6 * panels, 3.2)
        left, right, *third = figure.subplots(1, panels, sharex=True)
        _curve(left, curves[ACCURACY], ACCURACY, COLORS[0], "{:.2%}")
        _curve(right, curves[LIKELIHOOD], LIKELIHOOD, COLORS[1], "{:.4f}")
        if trained and curves[LIKELIHOOD]:
            right.lines[0].set_label("test data")
            _line(right, trained, INK, linestyle="--", label="training data")
            right.legend()
        for axes in third:
            _round_axis(axes)
            _line(axes, diverged, COLORS[2])
            axes.set_ylabel("KL from the prior / N (nats)")
        percent_axis(left.yaxis)
        left.set_ylabel("accuracy (%)")
        right.set_ylabel("negative log-likelihood (nats)")
        label_panels(left, right, *third)
        set_title(figure, f"Learning curve{_samples(folder)}", folder)
        return figure


def _samples(folder: RunFolder) -> str:
    """Return the number of Monte Carlo samples of a round; the final metrics have more."""
    samples = folder.config().get("evaluate-mc-samples") if folder.holds(CONFIG) else None
    return f", {samples} Monte Carlo samples a round" if samples else ""


def _points(rounds: list[dict[str, Any]], metric: str) -> list[tuple[int, float]]:
    """Return (round, value) of the rounds that have a finite value."""
    values = [(entry["round"], entry.get(metric)) for entry in rounds]
    return [(n, float(v)) for n, v in values if v is not None and math.isfinite(v)]


def _round_axis(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))


def _line(axes: Axes, points: list[tuple[int, float]], color: str, **style: Any) -> None:
    rounds, values = zip(*points, strict=True)
    marker = "o" if len(points) <= FEW_ROUNDS else ""
    axes.plot(rounds, values, color=color, marker=marker, markersize=3.0, **style)


def _curve(axes: Axes, points: list[tuple[int, float]], metric: str, color: str, form: str) -> None:
    """Draw one metric against the round and mark its best round."""
    _round_axis(axes)
    if not points:
        return
    _line(axes, points, color)
    sign = 1.0 if metrics.get(metric).higher_is_better else -1.0
    best_round, best = max(points, key=lambda point: sign * point[1])
    axes.plot([best_round], [best], "o", color=color, markersize=6.0, markerfacecolor="white")
    last = f"last {form.format(points[-1][1])}"
    axes.set_title(f"{last}, best {form.format(best)} (round {best_round})", loc="right")
