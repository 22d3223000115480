"""Figures of the final predictions of classes and of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bfl.evaluation.metrics.expected_calibration_error import ExpectedCalibrationError
from bfl.evaluation.metrics.scores import wilson_interval
from bfl.evaluation.regression import LEVEL, SQUARED
from bfl.evaluation.uncertainty import uncertainties
from bfl.experiments.results import run_folder
from bfl.experiments.results.figures import Figure, figures, style
from bfl.experiments.results.figures.style import COLORS, FAINT, INK
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.results.table import auroc
from bfl.texts import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

WRITTEN = 20
"""The most classes with numbers in the cells."""


@figures.register("confusion-matrix")
class ConfusionMatrix(Figure):
    """Test examples by true and predicted class; the colour is the share of the true class.

    Reference:
        Kohavi and Provost (1998), "Glossary of terms", Machine Learning 30.
    """

    needs = run_folder.PREDICTED_CLASSES

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure."""
        predictions, labels = folder.predictions()
        counts = np.zeros((predictions.classes, predictions.classes), np.int64)
        np.add.at(counts, (labels, predictions.predicted), 1)
        of_class = counts.sum(axis=1, keepdims=True)
        share = counts / np.maximum(of_class, 1)
        names = style.names_of_classes(style.class_names(folder))
        # Long names take their room beside the cells and below them.
        side = 2.2 + min(8.0, 0.42 * len(counts)) + 0.06 * max(map(len, names), default=0)
        figure = style.new_figure(max(side + 0.9, 4.6), max(side, 3.6))
        axes = figure.subplots()
        image = axes.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0, interpolation="nearest")
        axes.grid(visible=False)
        axes.set_xlabel("predicted class")
        axes.set_ylabel("true class")
        for axis in (axes.xaxis, axes.yaxis):
            style.name_ticks(axis, names, len(counts))
        if len(counts) <= WRITTEN:
            style.write_counts(axes, counts, share > 0.5)
        bar = figure.colorbar(image, label="share of the true class (%)")
        style.percent_axis(bar.ax.yaxis)
        right = int(np.trace(counts))
        title = f"Confusion matrix · {right:,} of {counts.sum():,} test examples right"
        style.set_title(figure, title, folder)
        return figure


@figures.register("reliability-diagram")
class ReliabilityDiagram(Figure):
    """Accuracy against confidence in bins, over the histogram of the confidences.

    Bars below the diagonal are overconfident. The bins are those of the expected calibration error
    in the title, ``calibration-bins`` of the run.

    Reference:
        Guo et al. (2017), "On calibration of modern neural networks", Fig. 1.
    """

    needs = run_folder.PREDICTED_CLASSES

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure."""
        config = folder.config({})
        settings = {key: config[key] for key in ("calibration-bins",) if key in config}
        bins = ExpectedCalibrationError(**settings).bins(*folder.predictions())
        filled, widths = bins.count > 0, np.diff(bins.edges)
        left, width = bins.edges[:-1][filled], widths[filled]
        accuracy, confidence = bins.accuracy[filled], bins.confidence[filled]
        share = bins.count / bins.count.sum()
        figure = style.new_figure(4.2, 5.4)
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
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
        upper.plot([0, 1], [0, 1], color=INK, linewidth=1.0, linestyle="--", label="calibrated")
        upper.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0), ylabel="accuracy (%)")
        upper.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        drawn = lower.bar(bins.edges[:-1], share, widths, color=FAINT, **bars)
        lower.bar_label(drawn, map(str, bins.count), padding=2, rotation=90, fontsize=6)
        lower.set_ylim(0.0, 1.3 * float(share.max()))  # room for the numbers
        looks = (("accuracy", accuracy, "-"), ("confidence", confidence, "--"))
        for (what, values, dash), color in zip(looks, COLORS, strict=False):
            mean = float(np.sum(values * share[filled]))
            lower.axvline(mean, color=color, linestyle=dash, label=f"mean {what} {100 * mean:.1f}%")
        # Below the axes, where it covers no bar and no number.
        lower.legend(loc="upper center", bbox_to_anchor=(0.5, -0.3), ncols=2)
        lower.set(xlabel="confidence (%)", ylabel="examples (%)")
        style.percent_axis(upper.yaxis, lower.xaxis, lower.yaxis)
        error = f"ECE {100 * bins.error:.2f}% ({bins.count.size} bins)"
        style.set_title(figure, f"Reliability diagram · {error}", folder)
        return figure


ACCURACY = "accuracy"
LIKELIHOOD = "negative-log-likelihood"


@figures.register("retention-curves")
class RetentionCurves(Figure):
    """Accuracy of classes or squared error of numbers, and likelihood, of the data retained.

    The least certain are discarded first, by each uncertainty: its line has its area in the legend.
    The baseline discards at random, and the oracle discards the errors first. If accuracy rises, or
    error falls, from right to left, the uncertainty identifies errors.

    Reference:
        Fischer et al. (2024), section 3.3 and Figs. 2, 4, 6 and 7; Filos et al. (2019).
    """

    needs = run_folder.RETENTION

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure."""
        content = folder.read_json(run_folder.RETENTION)
        numbers = folder.holds(run_folder.PREDICTED_NUMBERS)
        figure = style.new_figure(7.2, 4.6)
        left, right = figure.subplots(1, 2, sharex=True)
        with folder.decoding(run_folder.RETENTION):
            fraction = np.asarray(content["fraction"], dtype=np.float64)
            whole = _draw(left, fraction, content["curves"][SQUARED if numbers else ACCURACY])
            _draw(right, fraction, content["curves"][LIKELIHOOD])
        if numbers:
            predicted, targets = folder.predicted_numbers()
            errors = np.sort((predicted.mean - targets) ** 2)
            kept = np.maximum(1, np.rint(fraction * errors.size)).astype(int)
            oracle = np.cumsum(errors)[kept - 1] / kept
            left.set_ylabel("mean squared error")
        else:
            oracle = np.minimum(1.0, whole / fraction)
            style.percent_axis(left.yaxis)
            left.set_ylabel("accuracy (%)")
        left.plot(fraction, oracle, color=FAINT, linewidth=1.0, linestyle=":", label="oracle")
        right.set_ylabel("negative log-likelihood (nats)")
        # Below the axes, as no corner of the panels is free in every run.
        for axes in (left, right):
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22))
        style.label_panels(left, right)
        style.set_title(figure, "Retention curves on the test data", folder)
        return figure


def _draw(axes: Axes, fraction: Any, curves: Mapping[str, Any]) -> float:
    base = 0.0
    for index, (by, curve) in enumerate(curves.items()):
        label = f"{by.replace('-', ' ')} (area {curve['area']:.4f})"
        axes.plot(fraction, curve["value"], **style.look_of(index), label=label)
        base = float(curve["value"][-1])
    axes.axhline(base, color=FAINT, linewidth=1.0, label=f"at random (area {base:.4f})", zorder=1)
    axes.set_xlim(0.0, 1.0)
    axes.set_xlabel("data retained (%)")
    style.percent_axis(axes.xaxis)
    return base


BINS = 24


@figures.register("uncertainty-of-errors")
class UncertaintyOfErrors(Figure):
    """Uncertainties of right and of wrong predictions, by measure.

    The number in a panel is the area under the receiver operating characteristic: the probability
    that a wrong prediction is more uncertain than a right one, ties counted half. An uncertainty
    unrelated to errors has 0.5, and a perfect one has 1.

    Reference:
        Hendrycks and Gimpel (2017), "A baseline for detecting misclassified and out-of-distribution
        examples in neural networks", section 2; Hanley and McNeil (1982) (the area as a
        probability).
    """

    needs = run_folder.PREDICTED_CLASSES

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure."""
        from matplotlib.ticker import MaxNLocator

        predictions, labels = folder.predictions()
        wrong = predictions.predicted != labels
        shown = [u for u in uncertainties.classes() if u.retention]
        figure = style.new_figure(0.6 + 2.7 * len(shown), 3.4)
        panels = figure.subplots(1, len(shown), squeeze=False)[0]
        groups = ((~wrong, "right", COLORS[0]), (wrong, "wrong", COLORS[1]))
        for axes, uncertainty in zip(panels, shown, strict=True):
            values = uncertainty().measure(predictions)
            top = float(values.max())
            edges = np.linspace(0.0, top if top > 0 else 1.0, BINS + 1).tolist()
            for chosen, what, color in groups:
                count = int(chosen.sum())
                shares: dict[str, Any] = {"weights": np.full(count, 1.0 / max(count, 1))}
                shares |= {"bins": edges, "color": color}
                axes.hist(values[chosen], alpha=0.25, histtype="stepfilled", **shares)
                label = f"{what} ({count:,})"
                axes.hist(values[chosen], histtype="step", label=label, **shares)
            title = "only errors" if wrong.any() else "no errors"
            if wrong.any() and not wrong.all():
                title = f"AUROC {auroc(values, wrong):.3f}"
            axes.set_title(title, loc="right")
            axes.set_xlabel(uncertainty.name.replace("-", " "))
            axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
            style.percent_axis(axes.yaxis)
            axes.set_ylabel("right, or wrong, predictions (%)")
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=2)
        style.label_panels(*panels)
        style.set_title(
            figure, "Uncertainty of right and of wrong predictions of test examples", folder
        )
        return figure


@figures.register("familiarity")
class Familiarity(Figure):
    """Cumulative share of the test examples by familiarity, of right and of wrong predictions.

    Familiarity is the share of held-back examples that are stranger. Test examples like those have
    the diagonal; a line above it has more strange examples.

    Reference:
        Vovk et al. (2005), "Algorithmic learning in a random world" (ranks among held-back
        examples).
    """

    needs = run_folder.PREDICTED_CLASSES

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure."""
        predictions, labels = folder.predictions()
        if predictions.familiarity is None:
            return None
        figure = style.new_figure(5.6, 3.6)
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=INK, linewidth=1.0, linestyle="--", label="as held back")
        right = predictions.predicted == labels
        for index, (chosen, what) in enumerate(((right, "right"), (~right, "wrong"))):
            values = np.sort(predictions.familiarity[chosen])
            shares = np.arange(1, values.size + 1) / max(values.size, 1)
            axes.step(
                values,
                shares,
                where="post",
                **style.look_of(index),
                label=f"{what} ({values.size})",
            )
        axes.set(xlabel="familiarity (%)", ylabel="test examples at most as familiar (%)")
        style.percent_axis(axes.xaxis, axes.yaxis)
        axes.legend()
        style.set_title(figure, "Familiarity of test examples", folder)
        return figure


@figures.register("member-confidences")
class MemberConfidences(Figure):
    """Histograms of members' confidences in right and in wrong predictions of test examples.

    The clients' models have a panel and the samples another one, with means over the members. For
    reliable models, wrong predictions lie on the left.

    Reference:
        Chen and Chao (2021), FedBE, Figs. 1 (c) and 9.
    """

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure, or None when the run has evaluated no samples and no clients."""
        found = folder.read_json(run_folder.ENSEMBLE, {}).get("confidences", {})
        if not found:
            return None
        figure = style.new_figure(1.0 + 2.8 * len(found), 3.2)
        panels = figure.subplots(1, len(found), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (kind, counts) in zip(panels, sorted(found.items()), strict=True):
            with folder.decoding(run_folder.ENSEMBLE):
                right, wrong = (np.array(counts[of], float) for of in ("right", "wrong"))
                edges = np.linspace(0.0, 1.0, right.size + 1)
                low, width = edges[:-1], np.diff(edges)
                axes.bar(low, right, width / 2, align="edge", color=COLORS[0], label="right")
                axes.bar(
                    low + width / 2, wrong, width / 2, align="edge", color=COLORS[1], label="wrong"
                )
            axes.set_title(kind)
            axes.set_xlim(0.0, 1.0)
            style.percent_axis(axes.xaxis)
            axes.set_xlabel("confidence (%)")
            axes.set_ylabel("test examples of a model")
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=2)
        style.set_title(figure, "Confidences of an ensemble's members", folder)
        return figure


LEVELS = np.linspace(0.0, 1.0, 41)


@figures.register("predicted-numbers")
class PredictedNumbers(Figure):
    """Predicted against true numbers with intervals, and the share of targets within intervals.

    The second panel has the share of targets within central intervals of each probability. A line
    below the diagonal is overconfident.

    Reference:
        Kuleshov et al. (2018), "Accurate uncertainties for deep learning using calibrated
        regression", section 3.5.
    """

    needs = run_folder.PREDICTED_NUMBERS

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure."""
        predicted, targets = folder.predicted_numbers()
        figure = style.new_figure(7.6, 4.2)
        left, right = figure.subplots(1, 2)
        some = np.arange(0, targets.size, -(-targets.size // 200))  # evenly spaced
        shown = predicted.take(some)
        low, high = shown.interval
        left.vlines(
            targets[some], low, high, color=FAINT, linewidth=0.6, label=f"{LEVEL:.0%} interval"
        )
        label = f"mean, {some.size} of them"
        left.scatter(targets[some], shown.mean, 8, color=COLORS[0], label=label, zorder=3)
        ends = [targets.min(), targets.max()]
        left.plot(ends, ends, color=INK, linewidth=1.0, linestyle="--")
        left.set(xlabel="true number", ylabel="predicted number")
        left.legend()
        # A target is within the central interval of probability p if 2 |F(y) − ½| ≤ p.
        place = 2.0 * np.abs(predicted.distribution(targets) - 0.5)
        right.plot([0, 1], [0, 1], color=INK, linewidth=1.0, linestyle="--", label="calibrated")
        inside = [(place <= level).mean() for level in LEVELS]
        right.plot(LEVELS, inside, color=COLORS[0], label="test examples")
        right.set(xlabel="probability of the interval (%)", ylabel="targets within it (%)")
        style.percent_axis(right.xaxis, right.yaxis)
        right.legend()
        style.label_panels(left, right)
        error = np.sqrt(np.mean((predicted.mean - targets) ** 2))
        what = f"Predicted numbers · RMSE {error:.4g}, {counted(targets.size, 'test example')}"
        style.set_title(figure, what, folder)
        return figure
