"""Figures of the final predictions of classes and of numbers, and of foreign images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bfl.evaluation.metrics.expected_calibration_error import ExpectedCalibrationError
from bfl.evaluation.metrics.scores import wilson_interval
from bfl.evaluation.regression import LEVEL, SQUARED
from bfl.experiments.results import run_folder
from bfl.experiments.results.figures import style
from bfl.experiments.results.figures.style import COLORS, FAINT, INK
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.results.summary import QUANTILES
from bfl.experiments.results.table import three_digits
from bfl.texts import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

ACCURACY, LIKELIHOOD = "accuracy", "negative-log-likelihood"

DIAGONAL: dict[str, Any] = {"color": INK, "linewidth": 1.0, "linestyle": "--"}

RIGHT_OR_WRONG = (("right", COLORS[0]), ("wrong", COLORS[1]))


def confusion_matrix(folder: RunFolder) -> tuple[MatplotlibFigure, str] | None:
    """Test examples by true and predicted class; the colour is the share of the true class.

    Reference:
        Kohavi and Provost (1998), "Glossary of terms", Machine Learning 30.
    """
    if not folder.holds(run_folder.PREDICTED_CLASSES):
        return None
    predictions, labels = folder.predictions()
    counts = np.zeros((predictions.classes, predictions.classes), np.int64)
    np.add.at(counts, (labels, predictions.predicted), 1)
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    names = style.short_names(folder.class_names())
    # Long names take their room beside the cells and below them.
    side = 2.2 + min(8.0, 0.42 * len(counts)) + 0.06 * max(map(len, names), default=0)
    size = max(side + 0.9, 4.6), max(side, 3.6)
    drawing, axes, image = style.draw_counts(size, counts, share, most=400, highest=1.0)
    axes.set(xlabel="predicted class", ylabel="true class")
    for axis in (axes.xaxis, axes.yaxis):
        style.name_ticks(axis, names, len(counts))
    drawing.colorbar(image, label="share of the true class")
    right = int(np.trace(counts))
    return drawing, f"Confusion matrix · {right:,} of {counts.sum():,} test examples right"


def reliability_diagram(folder: RunFolder) -> tuple[MatplotlibFigure, str] | None:
    """Accuracy against confidence in bins, over the histogram of the confidences.

    Bars below the diagonal are overconfident. The bins are those of the expected calibration error
    in the title, ``calibration-bins`` of the run.

    Reference:
        Guo et al. (2017), "On calibration of modern neural networks", Fig. 1.
    """
    if not folder.holds(run_folder.PREDICTED_CLASSES):
        return None
    config = folder.config({})
    settings = {key: config[key] for key in ("calibration-bins",) if key in config}
    bins = ExpectedCalibrationError(**settings).bins(*folder.predictions())
    filled, widths = bins.count > 0, np.diff(bins.edges)
    left, width = bins.edges[:-1][filled], widths[filled]
    accuracy, confidence = bins.accuracy[filled], bins.confidence[filled]
    share = bins.count / bins.count.sum()
    drawing = style.new_figure(4.2, 5.4)
    upper, lower = drawing.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    bars: dict[str, Any] = {"align": "edge", "edgecolor": "white"}
    upper.bar(left, accuracy, width, color=COLORS[0], label="accuracy", **bars)
    upper.bar(
        left,
        confidence - accuracy,
        width,
        bottom=accuracy,
        align="edge",
        facecolor="none",
        edgecolor=COLORS[1],
        hatch="////",
        linewidth=0.8,
        label="gap to mean confidence",
    )
    ends = wilson_interval(accuracy, bins.count[filled])
    upper.vlines(left + width / 2, *ends, color=INK, linewidth=1.0, label="95 % interval")
    upper.plot([0, 1], [0, 1], label="calibrated", **DIAGONAL)
    upper.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0), ylabel="accuracy")
    upper.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    drawn = lower.bar(bins.edges[:-1], share, widths, color=FAINT, **bars)
    lower.bar_label(drawn, map(str, bins.count), padding=2, rotation=90, fontsize=6)
    lower.set_ylim(0.0, 1.3 * float(share.max()))  # room for the numbers
    looks = (("accuracy", accuracy, "-"), ("confidence", confidence, "--"))
    for (what, values, dash), color in zip(looks, COLORS, strict=False):
        mean = float(np.sum(values * share[filled]))
        lower.axvline(mean, color=color, linestyle=dash, label=f"mean {what} {mean:.3f}")
    # Below the axes, where it covers no bar and no number.
    lower.legend(loc="upper center", bbox_to_anchor=(0.5, -0.3), ncols=2)
    lower.set(xlabel="confidence", ylabel="share of examples")
    error = f"ECE {three_digits(bins.error)} ({bins.count.size} bins)"
    return drawing, f"Reliability diagram · {error}"


def retention_curves(folder: RunFolder) -> tuple[MatplotlibFigure, str] | None:
    """Test metrics as the least certain examples are discarded, by each uncertainty.

    A line has its area in the legend. The baseline discards at random, and the oracle discards the
    errors first. If accuracy rises, or error falls, from right to left, the uncertainty identifies
    errors.

    Reference:
        Fischer et al. (2024), section 3.3 and Figs. 2, 4, 6 and 7; Filos et al. (2019).
    """
    if not folder.holds(run_folder.RETENTION):
        return None
    content = folder.read_json(run_folder.RETENTION)
    numbers = folder.holds(run_folder.PREDICTED_NUMBERS)
    drawing = style.new_figure(7.2, 4.6)
    left, right = drawing.subplots(1, 2, sharex=True)
    flat = set()
    if folder.holds(run_folder.PREDICTED_CLASSES) and not folder.predictions()[0].epistemic.any():
        flat = {"epistemic"}
    with folder.decoding(run_folder.RETENTION):
        fraction = np.asarray(content["fraction"], dtype=np.float64)
        first, second = (
            {by: curve for by, curve in content["curves"][metric].items() if by not in flat}
            for metric in (SQUARED if numbers else ACCURACY, LIKELIHOOD)
        )
        whole = _draw_retention(left, fraction, first)
        _draw_retention(right, fraction, second)
    if numbers:
        predicted, targets = folder.predicted_numbers()
        errors = np.sort((predicted.mean - targets) ** 2)
        kept = np.maximum(1, np.rint(fraction * errors.size)).astype(int)
        oracle = np.cumsum(errors)[kept - 1] / kept
        left.set_ylabel("mean squared error")
    else:
        oracle = np.minimum(1.0, whole / fraction)
        left.set_ylabel("accuracy")
    left.plot(fraction, oracle, color=FAINT, linewidth=1.0, linestyle=":", label="oracle")
    right.set_ylabel("negative log-likelihood (nats)")
    # Below the axes, as no corner of the panels is free in every run.
    for axes in (left, right):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22))
    style.label_panels(left, right)
    return drawing, "Retention curves on the test data"


def _draw_retention(axes: Axes, fraction: Any, curves: Mapping[str, Any]) -> float:
    base = 0.0
    for index, (by, curve) in enumerate(curves.items()):
        label = f"{by.replace('-', ' ')} (area {three_digits(curve['area'])})"
        axes.plot(fraction, curve["value"], **style.look_of(index), label=label)
        base = float(curve["value"][-1])
    axes.axhline(
        base, color=FAINT, linewidth=1.0, label=f"at random (area {three_digits(base)})", zorder=1
    )
    axes.set(xlim=(0.0, 1.0), xlabel="share of data retained")
    return base


def familiarity(folder: RunFolder) -> tuple[MatplotlibFigure, str] | None:
    """Cumulative share of the test examples by familiarity, of right and of wrong predictions.

    Familiarity is the share of held-back examples that are stranger. Test examples like those have
    the diagonal; a line above it has more strange examples.

    Reference:
        Vovk et al. (2005), "Algorithmic learning in a random world" (ranks among held-back
        examples).
    """
    if not folder.holds(run_folder.PREDICTED_CLASSES):
        return None
    predictions, labels = folder.predictions()
    if predictions.familiarity is None:
        return None
    drawing = style.new_figure(5.6, 3.6)
    axes = drawing.subplots()
    axes.plot([0, 1], [0, 1], label="as held back", **DIAGONAL)
    right = predictions.predicted == labels
    for index, (chosen, what) in enumerate(((right, "right"), (~right, "wrong"))):
        values = np.sort(predictions.familiarity[chosen])
        shares = np.arange(1, values.size + 1) / max(values.size, 1)
        look = {**style.look_of(index), "label": f"{what} ({values.size})"}
        axes.step(values, shares, where="post", **look)
    axes.set(xlabel="familiarity", ylabel="share of test examples at most as familiar")
    axes.legend()
    return drawing, "Familiarity of test examples"


def member_confidences(folder: RunFolder) -> tuple[MatplotlibFigure, str] | None:
    """Histograms of members' confidences in right and in wrong predictions of test examples.

    The clients' models have a panel and the samples another one, with means over the members. For
    reliable models, wrong predictions lie on the left.

    Reference:
        Chen and Chao (2021), FedBE, Figs. 1 (c) and 9.
    """
    found = folder.read_json(run_folder.ENSEMBLE, {}).get("confidences", {})
    if not found:
        return None
    drawing = style.new_figure(1.0 + 2.8 * len(found), 3.2)
    panels = drawing.subplots(1, len(found), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (kind, counts) in zip(panels, sorted(found.items()), strict=True):
        for place, (what, color) in enumerate(RIGHT_OR_WRONG):
            with folder.decoding(run_folder.ENSEMBLE):
                heights = np.array(counts[what], float)
            edges = np.linspace(0.0, 1.0, heights.size + 1)
            width = np.diff(edges) / 2
            left = edges[:-1] + place * width
            axes.bar(left, heights, width, align="edge", color=color, label=what)
        axes.set_title(kind)
        axes.set(xlim=(0.0, 1.0), xlabel="confidence", ylabel="test examples of a model")
    handles, names = panels[0].get_legend_handles_labels()
    drawing.legend(handles, names, loc="outside lower center", ncols=2)
    return drawing, "Confidences of an ensemble's members"


def predicted_numbers(folder: RunFolder) -> tuple[MatplotlibFigure, str] | None:
    """Predicted against true numbers with intervals, and the share of targets within intervals.

    The second panel has the share of targets within central intervals of each probability. A line
    below the diagonal is overconfident.

    Reference:
        Kuleshov et al. (2018), "Accurate uncertainties for deep learning using calibrated
        regression", section 3.5.
    """
    if not folder.holds(run_folder.PREDICTED_NUMBERS):
        return None
    predicted, targets = folder.predicted_numbers()
    drawing = style.new_figure(7.6, 4.2)
    left, right = drawing.subplots(1, 2)
    some = np.arange(0, targets.size, -(-targets.size // 200))  # evenly spaced
    shown = predicted.take(some)
    intervals = {"color": FAINT, "linewidth": 0.6, "label": f"{LEVEL:.0%} interval"}
    left.vlines(targets[some], *shown.interval, **intervals)
    label = f"mean, {some.size} of them"
    left.scatter(targets[some], shown.mean, 8, color=COLORS[0], label=label, zorder=3)
    ends = [targets.min(), targets.max()]
    left.plot(ends, ends, **DIAGONAL)
    left.set(xlabel="true number", ylabel="predicted number")
    # A target is within the central interval of probability p if 2 |F(y) − ½| ≤ p.
    place = 2.0 * np.abs(predicted.distribution(targets) - 0.5)
    levels = np.linspace(0.0, 1.0, 41)
    right.plot([0, 1], [0, 1], label="calibrated", **DIAGONAL)
    inside = [(place <= level).mean() for level in levels]
    right.plot(levels, inside, color=COLORS[0], label="test examples")
    right.set(xlabel="probability of the interval", ylabel="share of targets within it")
    left.legend()
    right.legend()
    style.label_panels(left, right)
    error = np.sqrt(np.mean((predicted.mean - targets) ** 2))
    examples = counted(targets.size, "test example")
    return drawing, f"Predicted numbers · RMSE {error:.4g}, {examples}"


def foreign_images(folder: RunFolder) -> tuple[MatplotlibFigure, str] | None:
    """Cumulative shares of the test images and of each foreign source by score.

    A source is detected if its line is far to the right of the test images'. The AUROC is the
    probability that a foreign image has a higher score than a test image.

    Reference:
        Hendrycks and Gimpel (2017), "A baseline for detecting misclassified and out-of-distribution
        examples in neural networks", section 2.
    """
    if not folder.holds(run_folder.FOREIGN):
        return None
    content = folder.read_json(run_folder.FOREIGN)
    drawing = style.new_figure(4.8, 4.0)
    axes = drawing.subplots()
    with folder.decoding(run_folder.FOREIGN):
        score, test = content["score"], np.asarray(content["test"], np.float64)
        axes.plot(test, QUANTILES, color=FAINT, linewidth=2.0, label="test images")
        for index, (name, source) in enumerate(content["sources"].items()):
            area = source["uncertainties"][score]["auroc"]
            label = f"{name}, {'near' if source['near'] else 'far'} (AUROC {area:.3f})"
            axes.plot(source["quantiles"], QUANTILES, **style.look_of(index), label=label)
    # Scores of foreign images may be thousands of times greater than those of test images.
    axes.set_xscale("symlog", linthresh=max(1e-3, float(np.ptp(test)) / 2))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    negative = "negative log-density of features (nats)"
    axes.set_xlabel(negative if score == "feature-density" else score.replace("-", " "))
    axes.set_ylabel("share of images below that score")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return drawing, "Foreign images against test images"
