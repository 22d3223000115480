"""The curves of several runs in one figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from bfl.experiments.results.figures.base import png
from bfl.experiments.results.figures.style import (
    drawable,
    finite_points,
    label_panels,
    look_of,
    new_figure,
    percent_axis,
    styled,
    whole_numbers,
)
from bfl.experiments.results.summary import retained
from bfl.experiments.studies.run_result import RunResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ACCURACY = "accuracy"
LIKELIHOOD = "negative-log-likelihood"
BY = "predictive-entropy"
FEW_ROUNDS = 30
CHARACTERS = 90
"""Up to so many characters of a label stand in one line of the legend."""

Points = Sequence[tuple[float, float]]


def overlay(runs: Mapping[str, RunResult]) -> bytes | None:
    """Return a PNG of the learning curves and retention curves of runs; None without any.

    Args:
        runs: The runs by what they are called in the legend.

    Raises:
        DataError: A file of a run is corrupt.
    """
    curves_of = {name: _curves(run) for name, run in runs.items()}
    if not any(map(any, curves_of.values())):
        return None
    curves = [{name: of[panel] for name, of in curves_of.items()} for panel in range(3)]
    with styled():
        lines = sum(len(wrap(name, CHARACTERS)) for name in runs)
        figure = new_figure(9.6, 3.3 + 0.19 * lines)
        panels = figure.subplots(1, 3)
        for axes, panel in zip(panels, curves, strict=True):
            _draw(axes, panel)
        _describe(*panels)
        shown = ["\n".join(wrap(drawable(name), CHARACTERS)) for name in runs]
        figure.legend(panels[0].get_lines(), shown, loc="outside lower left", ncols=1)
        figure.suptitle(f"{len(runs)} runs on their test data")
        return png(figure)


def has_curves(run: RunResult) -> bool:
    """Return whether a run has curves to draw: none where the server has evaluated nothing.

    Raises:
        DataError: A file of the run is corrupt.
    """
    return any(_curves(run))


def _curves(run: RunResult) -> tuple[Points, Points, Points]:
    """Return the points of a run's curves: accuracy, likelihood and retention if it is over."""
    kept = retained(run.retention, ACCURACY, BY, run.source) if run.retention else {}
    rounds = run.rounds
    return finite_points(rounds, ACCURACY), finite_points(rounds, LIKELIHOOD), list(kept.items())


def _draw(axes: Axes, curves: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    few = max(map(len, curves.values())) <= FEW_ROUNDS
    for index, (name, points) in enumerate(curves.items()):
        x, y = zip(*points, strict=True) if points else ((), ())
        axes.plot(
            x,
            y,
            **look_of(index),
            marker="o" if few else "",
            markersize=3.0,
            label=name,
        )


def _describe(accuracy: Axes, likelihood: Axes, retention: Axes) -> None:
    for axes in (accuracy, likelihood):
        axes.set_xlabel("round")
        whole_numbers(axes.xaxis, nbins=6)
    percent_axis(accuracy.yaxis)
    accuracy.set_ylabel("accuracy (%)")
    likelihood.set_ylabel("negative log-likelihood (nats)")
    retention.set_xlim(0.0, 1.0)
    percent_axis(retention.xaxis)
    percent_axis(retention.yaxis)
    retention.set_xlabel(f"data retained by {BY.replace('-', ' ')} (%)")
    retention.set_ylabel("accuracy of the end (%)")
    label_panels(accuracy, likelihood, retention)
