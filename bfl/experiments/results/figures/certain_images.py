"""The test images that are predicted with the most and the least certainty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bfl.experiments.results.examples import BY, Examples, read_examples
from bfl.experiments.results.figures.base import Figure, figures
from bfl.experiments.results.figures.style import (
    COLORS,
    INK,
    class_names,
    names_of_classes,
    new_figure,
    set_title,
)
from bfl.experiments.results.run_folder import EXAMPLES, RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

GAP = 0.12
"""Gap between two images, as a share of their width."""

LONGEST_NAME = 10
"""Characters of a class's name that fit below an image."""


@figures.register("certain-images")
class CertainImages(Figure):
    """The test images with the lowest and with the highest predictive entropy, with their classes.

    Wrong predictions are written in another colour: among the certain ones they are what to worry
    about, and the uncertain ones show what the model takes to be hard.

    Reference:
        Fischer et al. (2024), Eq. 8 (the uncertainty); Filos et al. (2019), Fig. 4 (images by
        their uncertainty).
    """

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure, or None when the run has kept no test images."""
        if not folder.holds(EXAMPLES):
            return None
        certain, uncertain = read_examples(folder)
        if not len(certain.positions):
            return None
        names = names_of_classes(class_names(folder), LONGEST_NAME)
        figure = new_figure(max(4.5, 1.05 * len(certain.positions) + 0.6), 3.8)
        upper, lower = figure.subplots(2, 1)
        _row(upper, certain, names, "most certain")
        _row(lower, uncertain, names, "least certain")
        lower.set_xlabel(f"predicted class (true class), {BY.replace('-', ' ')}")
        set_title(figure, "Most and least certain predictions of test images", folder)
        return figure


def _row(axes: Axes, examples: Examples, names: Sequence[str], label: str) -> None:
    """Draw images beside each other, with what was predicted below each."""
    height, width, channels = examples.images.shape[1:]
    step = 1.0 + GAP
    for place, image in enumerate(examples.images):
        shown = image if channels == 3 else image[..., 0]
        left = place * step
        axes.imshow(
            shown,
            cmap="gray",
            vmin=0,
            vmax=255,
            extent=(left, left + 1.0, 0.0, height / width),
            interpolation="nearest",
        )
    count = len(examples.positions)
    axes.set_xlim(-GAP, count * step)
    axes.set_ylim(0.0, height / width)
    axes.set_xticks(np.arange(count) * step + 0.5)
    axes.set_xticklabels([_caption(examples, i, names) for i in range(count)], fontsize=7.0)
    for place, tick in enumerate(axes.get_xticklabels()):
        right = examples.predicted[place] == examples.labels[place]
        tick.set_color(INK if right else COLORS[1])
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_ylabel(label)


def _caption(examples: Examples, place: int, names: Sequence[str]) -> str:
    def name(label: int) -> str:
        return names[label] if label < len(names) else str(label)

    predicted, true = int(examples.predicted[place]), int(examples.labels[place])
    known = f"({name(true)})"
    return f"{name(predicted)}\n{known}\n{examples.uncertainty[place]:.3g}"
