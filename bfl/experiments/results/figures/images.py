"""Figures of certain, foreign and corrupted images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bfl.data.images import as_type
from bfl.experiments.results.figures import Figure, figures, style
from bfl.experiments.results.figures.style import COLORS, FAINT, INK
from bfl.experiments.results.run_folder import CORRUPTIONS, EXAMPLES, FOREIGN, RunFolder
from bfl.experiments.results.summary import BY, METRICS, QUANTILES, Examples, read_examples

if TYPE_CHECKING:
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
        names = style.names_of_classes(style.class_names(folder), LONGEST_NAME)
        figure = style.new_figure(max(4.5, 1.05 * len(certain.positions) + 0.6), 3.8)
        upper, lower = figure.subplots(2, 1)
        _row(upper, certain, names, "most certain")
        _row(lower, uncertain, names, "least certain")
        lower.set_xlabel(f"predicted class (true class), {BY.replace('-', ' ')}")
        style.set_title(figure, "Most and least certain predictions of test images", folder)
        return figure


def _row(axes: Axes, examples: Examples, names: Sequence[str], label: str) -> None:
    height, width, channels = examples.images.shape[1:]
    step = 1.0 + GAP
    for place, image in enumerate(examples.images):
        shown = as_type(image, np.dtype(np.uint8)) if channels == 3 else image[..., 0]
        left = place * step
        extent = (left, left + 1.0, 0.0, height / width)
        axes.imshow(shown, "gray", vmin=0, vmax=255, extent=extent, interpolation="nearest")
    count = len(examples.positions)
    captions = [
        "{}\n({})\n{:.3g}".format(
            *(names[c] if c < len(names) else c for c in (predicted, true)), uncertainty
        )
        for predicted, true, uncertainty in zip(
            examples.predicted, examples.labels, examples.uncertainty, strict=True
        )
    ]
    axes.set_xticks(np.arange(count) * step + 0.5, captions, fontsize=7.0)
    for tick, right in zip(
        axes.get_xticklabels(), examples.predicted == examples.labels, strict=True
    ):
        tick.set_color(INK if right else COLORS[1])
    axes.set(xlim=(-GAP, count * step), ylim=(0.0, height / width), yticks=[], ylabel=label)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


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
        figure = style.new_figure(4.8, 4.0)
        axes = figure.subplots()
        with folder.decoding(FOREIGN):
            score, test = content["score"], np.asarray(content["test"], np.float64)
            axes.plot(test, QUANTILES, color=FAINT, linewidth=2.0, label="test images")
            for index, (name, source) in enumerate(content["sources"].items()):
                area = source["uncertainties"][score]["auroc"]
                label = f"{name}, {'near' if source['near'] else 'far'} (AUROC {area:.3f})"
                axes.plot(source["quantiles"], QUANTILES, **style.look_of(index), label=label)
        # Scores of foreign images may be thousands of times greater than those of test images.
        axes.set_xscale("symlog", linthresh=max(1e-3, float(np.ptp(test)) / 2))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel(score.replace("-", " ") + (" (nats)" if score == "feature-density" else ""))
        axes.set_ylabel("images below that score (%)")
        style.percent_axis(axes.yaxis)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))
        style.set_title(figure, "Foreign images against test images", folder)
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
        figure = style.new_figure(9.0, 3.4)
        panels = figure.subplots(1, len(METRICS), sharex=True)
        for panel, metric, unit in zip(panels, METRICS, ("%", "nats", "%"), strict=True):
            with folder.decoding(CORRUPTIONS):
                for index, (name, values) in enumerate(content.items()):
                    panel.plot(values[metric], **style.look_of(index), label=name)
            panel.set(xlabel="strength", ylabel=f"{metric.replace('-', ' ')} ({unit})")
            if unit == "%":
                style.percent_axis(panel.yaxis)
        panels[1].legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=len(content))
        style.label_panels(*panels)
        style.set_title(figure, "Corrupted test images", folder)
        return figure
