"""Figures of certain, foreign and corrupted images; layouts of features in the plane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bfl.data.images import as_type
from bfl.evaluation.prediction.predictions import FloatArray
from bfl.experiments.results.figures import Figure, figures
from bfl.experiments.results.figures.style import (
    COLORS,
    FAINT,
    INK,
    class_names,
    drawable,
    label_panels,
    look_of,
    names_of_classes,
    new_figure,
    percent_axis,
    png,
    set_title,
    styled,
)
from bfl.experiments.results.foreign import METRICS, QUANTILES
from bfl.experiments.results.run_folder import CORRUPTIONS, EXAMPLES, FOREIGN, RunFolder
from bfl.experiments.results.summary import BY, Examples, read_examples

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

GAP = 0.12
"""Gap between two images, as a share of their width."""

LONGEST_NAME = 10
"""The most characters of a class's name below an image."""


@figures.register("certain-images")
class CertainImages(Figure):
    """The test images with the lowest and with the highest predictive entropy, with their classes.

    Wrong predictions have another colour. Certain errors deserve attention; the uncertain images
    show what is hard for the model.

    Reference:
        Fischer et al. (2024), Eq. 8 (the uncertainty); Filos et al. (2019), Fig. 4 (images by
        their uncertainty).
    """

    needs = EXAMPLES

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure."""
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
    """Draw images side by side, with their predictions below."""
    height, width, channels = examples.images.shape[1:]
    step = 1.0 + GAP
    for place, image in enumerate(examples.images):
        shown = as_type(image, np.dtype(np.uint8)) if channels == 3 else image[..., 0]
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


@figures.register("foreign-images")
class ForeignImagesFigure(Figure):
    """Cumulative shares of the test images and of each foreign source by score.

    A source is detected if its line is far to the right of the test images'. The AUROC is the
    probability that a foreign image has a higher score than a test image.

    Reference:
        Hendrycks and Gimpel (2017), "A baseline for detecting misclassified and out-of-distribution
        examples in neural networks", section 2.
    """

    needs = FOREIGN

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure."""
        content = folder.read_json(FOREIGN)
        figure = new_figure(4.8, 4.0)
        axes = figure.subplots()
        with folder.decoding(FOREIGN):
            score, test = content["score"], np.asarray(content["test"], np.float64)
            axes.plot(test, QUANTILES, color=FAINT, linewidth=2.0, label="test images")
            for index, (name, source) in enumerate(content["sources"].items()):
                area = source["uncertainties"][score]["auroc"]
                label = f"{name}, {'near' if source['near'] else 'far'} (AUROC {area:.3f})"
                axes.plot(source["quantiles"], QUANTILES, **look_of(index), label=label)
        # Scores of foreign images may be thousands of times greater than those of test images.
        axes.set_xscale("symlog", linthresh=max(1e-3, float(np.ptp(test)) / 2))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel(score.replace("-", " ") + (" (nats)" if score == "feature-density" else ""))
        axes.set_ylabel("images below that score (%)")
        percent_axis(axes.yaxis)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))
        set_title(figure, "Foreign images against test images", folder)
        return figure


@figures.register("corruptions")
class CorruptionsFigure(Figure):
    """Accuracy, likelihood and calibration error by strength of corruption of the test images.

    Strength 0 is the unchanged images. The calibration error of a reliable network stays low, as
    its certainty falls with its accuracy.

    Reference:
        Ovadia et al. (2019), "Can you trust your model's uncertainty? Evaluating predictive
        uncertainty under dataset shift", Fig. 1; Hendrycks and Dietterich (2019).
    """

    needs = CORRUPTIONS

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure."""
        content = folder.read_json(CORRUPTIONS)
        figure = new_figure(9.0, 3.4)
        panels = figure.subplots(1, len(METRICS), sharex=True)
        with folder.decoding(CORRUPTIONS):
            for panel, metric in zip(panels, METRICS, strict=True):
                for index, (name, values) in enumerate(content.items()):
                    panel.plot(values[metric], **look_of(index), label=name)
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


# Features of several runs in the plane, a panel for each run and set of images ------------------

MARKERS = ("o", "^", "s", "D", "v", "P")
"""Markers of classes; they change when the colours repeat."""


SIDE = 3.0
"""The width of a panel in inches."""


CHARACTERS_OF_A_PANEL = 40
"""The most characters in a line above a panel."""


@dataclass(frozen=True)
class Layout:
    """Layout of one panel.

    Attributes:
        images: The title: the images' name, and the meaning of colours.
        places: (N, 2) positions in the plane.
        groups: (N,) the classes that colour the images.
        silhouette: The silhouette of the classes' features.
    """

    run: str
    images: str
    places: FloatArray
    groups: npt.NDArray[np.int64]
    silhouette: float


def draw_layouts(rows: Sequence[Sequence[Layout]], class_names: Sequence[str]) -> bytes:
    """Return a PNG of layouts, a row for each run."""
    shown = sorted({int(group) for row in rows for panel in row for group in panel.groups})
    with styled():
        figure = new_figure(max(4.5, SIDE * len(rows[0])), (SIDE + 0.3) * len(rows) + 0.8)
        panels = figure.subplots(len(rows), len(rows[0]), squeeze=False)
        for line, row in zip(panels, rows, strict=True):
            for axes, layout in zip(line, row, strict=True):
                _draw_layout(axes, layout, shown)
        handles = [_points(panels[0, 0], np.empty((0, 2)), group) for group in shown]
        names = names_of_classes(class_names)
        figure.legend(
            handles,
            [names[group] for group in shown],
            loc="outside lower center",
            ncols=min(len(shown), 5),
        )
        return png(figure)


def _draw_layout(axes: Axes, layout: Layout, groups: Sequence[int]) -> None:
    for group in groups:
        _points(axes, layout.places[layout.groups == group], group)
    lines = [
        *wrap(drawable(layout.run), CHARACTERS_OF_A_PANEL),
        *wrap(drawable(layout.images), CHARACTERS_OF_A_PANEL),
        f"silhouette {layout.silhouette:.3f}",
    ]
    axes.set_title("\n".join(lines))
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)


def _points(axes: Axes, places: FloatArray, group: int) -> Artist:
    """Draw a class, and return its handle for the legend."""
    return axes.scatter(
        places[:, 0],
        places[:, 1],
        s=9.0,
        color=COLORS[group % len(COLORS)],
        marker=MARKERS[group // len(COLORS) % len(MARKERS)],
        linewidths=0.0,
    )
