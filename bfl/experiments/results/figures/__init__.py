"""A run's figures, which are drawn from its folder alone."""

from __future__ import annotations

from collections.abc import Callable
from inspect import getdoc
from pathlib import Path
from typing import TYPE_CHECKING

from bfl.experiments.results.figures import predictions, rounds
from bfl.experiments.results.figures.style import png, run_title, styled, wrapped
from bfl.experiments.results.run_folder import RunFolder

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

Drawing = Callable[[RunFolder], "tuple[MatplotlibFigure, str] | None"]
"""A function that returns the figure of a run and its title, or None if the run lacks its data."""

FIGURES: dict[str, Drawing] = {
    "reliability-diagram": predictions.reliability_diagram,
    "confusion-matrix": predictions.confusion_matrix,
    "predicted-numbers": predictions.predicted_numbers,
    "retention-curves": predictions.retention_curves,
    "familiarity": predictions.familiarity,
    "member-confidences": predictions.member_confidences,
    "foreign-images": predictions.foreign_images,
    "partition": rounds.partition_by_class,
    "client-curves": rounds.client_curves,
    "learning-curve": rounds.learning_curve,
    "posterior-spread": rounds.posterior_spread,
}


def caption_of(name: str) -> str:
    """Return the sentence that describes a figure."""
    return " ".join((getdoc(FIGURES[name]) or "").partition("\n\n")[0].split())


def draw(name: str, folder: RunFolder, *, titled: bool = True) -> MatplotlibFigure | None:
    """Return a figure of a run, with or without its title; None if the run lacks its data."""
    with styled():
        drawn = FIGURES[name](folder)
        if drawn is None:
            return None
        figure, subject = drawn
        if titled:
            title = wrapped(f"{subject}\n{run_title(folder)}", figure.get_figwidth())
            figure.suptitle(title)
        # Legends below axes move with them: the layout needs a second pass.
        figure.draw_without_rendering()
        return figure


def draw_all(folder: RunFolder) -> list[Path]:
    """Draw every figure for which the run has data, and return the files; same data, same bytes."""
    return [
        folder.write(f"figures/{name}.png", png(figure))
        for name in sorted(FIGURES)
        if (figure := draw(name, folder)) is not None
    ]
