"""Figures of rounds and clients: learning curves, spreads, clients' metrics, partitions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bfl.errors import DataError
from bfl.evaluation.metrics import metrics
from bfl.experiments.results import run_folder
from bfl.experiments.results.figures import register_figure, style
from bfl.experiments.results.figures.style import COLORS, FAINT, INK
from bfl.experiments.results.run_folder import WHOLE, RunFolder
from bfl.federation.client_metrics import (
    MEME,
    PERSONAL,
    TEST_ACCURACY,
    TRAIN_DIVERGENCE,
    TRAIN_DIVERGENCE_PER_EXAMPLE,
    TRAIN_LIKELIHOOD,
    TRAIN_SECONDS,
    recorded,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as MatplotlibFigure

Numbers = npt.NDArray[np.float64]

ACCURACY = "accuracy"
ERROR = "root-mean-squared-error"
LIKELIHOOD = "negative-log-likelihood"
FEW_ROUNDS = 30
STANDARDISED = "training NLL (nats),\nstandardised target"
DIVERGED = "KL from the prior / N (nats)"


@register_figure("learning-curve")
def learning_curve(folder: RunFolder) -> tuple[MatplotlibFigure, str] | None:
    """Accuracy of classes or error of numbers, and negative log-likelihood, by evaluated round.

    The likelihood on the clients' training data, while they train, is drawn next to that on the
    test data. Of numbers it has a panel of its own: it is that of the standardised target, and the
    other is in the target's unit. So has what training pays for the divergence from the prior.

    Reference:
        Fischer et al. (2024), section 3.3 (the metrics).
    """
    rounds = folder.rounds()
    curves = {metric: style.finite_points(rounds, metric) for metric in (ACCURACY, LIKELIHOOD)}
    if not any(curves.values()):
        return None
    trained = style.finite_points(rounds, recorded(TRAIN_LIKELIHOOD))
    diverged = style.finite_points(rounds, recorded(TRAIN_DIVERGENCE_PER_EXAMPLE))
    errors = style.finite_points(rounds, ERROR)
    beside = {STANDARDISED: (trained if errors else [], INK), DIVERGED: (diverged, COLORS[2])}
    beside = {label: drawn for label, drawn in beside.items() if any(v for _, v in drawn[0])}
    lines = 2 if len(beside) == 2 else 1
    columns = (2 + len(beside)) // lines
    drawing = style.new_figure(3.6 * columns, 3.2 * lines)
    grid = drawing.subplots(lines, columns, sharex=True, squeeze=False).ravel()
    left, right, *others = grid
    if errors:
        _draw_line(left, errors, COLORS[0])
        left.set_ylabel("root-mean-squared error")
    else:
        _draw_curve(left, curves[ACCURACY], ACCURACY, COLORS[0], "{:.2%}")
        style.percent_axis(left.yaxis)
        left.set_ylabel("accuracy (%)")
    _draw_curve(right, curves[LIKELIHOOD], LIKELIHOOD, COLORS[1], "{:.4f}")
    if trained and curves[LIKELIHOOD] and not errors:
        right.lines[0].set_label("test data")
        _draw_line(right, trained, INK, linestyle="--", label="training data")
        right.legend()
    for axes, (label, (points, color)) in zip(others, beside.items(), strict=True):
        _draw_line(axes, points, color)
        axes.set_ylabel(label)
    right.set_ylabel("negative log-likelihood (nats)")
    style.label_panels(*grid)
    samples = folder.config({}).get("evaluate-mc-samples")
    of_samples = f", {samples} Monte Carlo samples a round" if samples else ""
    return drawing, f"Learning curve{of_samples}"


def _label_rounds(axes: Axes) -> None:
    axes.set_xlabel("round")
    style.whole_numbers(axes.xaxis, nbins=8)
    axes.xaxis.set_tick_params(labelbottom=True)  # also where the panel below shares it


def _draw_line(axes: Axes, points: list[tuple[int, float]], color: str, **look: Any) -> None:
    _label_rounds(axes)
    if points:
        marker = "o" if len(points) <= FEW_ROUNDS else ""
        axes.plot(*np.transpose(points), color=color, marker=marker, markersize=3.0, **look)


def _draw_curve(
    axes: Axes, points: list[tuple[int, float]], metric: str, color: str, form: str
) -> None:
    _draw_line(axes, points, color)
    if points:
        sign = 1.0 if metrics.get(metric).higher_is_better else -1.0
        best_round, best = max(points, key=lambda point: sign * point[1])
        axes.plot([best_round], [best], "o", color=color, markersize=6.0, markerfacecolor="white")
        last = f"last {form.format(points[-1][1])}"
        axes.set_title(f"{last}, best {form.format(best)} (round {best_round})", loc="right")


@register_figure("posterior-spread")
def posterior_spread(folder: RunFolder) -> tuple[MatplotlibFigure, str] | None:
    """Mean epistemic uncertainty by round, and standard deviations by layer and by round.

    A layer's line spans the middle 90 % of its Gaussian parameters' final standard deviations, with
    a dot at the median. Each round has its √(mean σ²). If the epistemic uncertainty vanishes, the
    posterior has collapsed.

    Reference:
        Blundell et al. (2015), "Weight uncertainty in neural networks", Section 5.1 (the spread of
        weights); the epistemic part: Fischer et al. (2024), section 2.3.
    """
    if not folder.holds(run_folder.POSTERIOR):
        return None
    posterior, manifest = folder.posterior()
    if not posterior.size:
        return None
    ends = np.cumsum([parameter.size for parameter in manifest.gaussian])
    layers = np.split(np.sqrt(posterior.variance), ends[:-1])
    low, middle, high = np.transpose([np.quantile(d, (0.05, 0.5, 0.95)) for d in layers])
    every = folder.rounds()
    rounds = [r for r in every if len(r.get(run_folder.DEVIATIONS, ())) == len(low)]
    drawing = style.new_figure(9.6 if rounds else 7.2, max(3.2, 0.9 + 0.13 * len(layers)))
    left, right, *more = drawing.subplots(1, 3 if rounds else 2)
    epistemic = [(n, v) for n, v in style.finite_points(every, "mean-epistemic") if v > 0.0]
    _draw_line(left, epistemic, COLORS[2])
    if epistemic:
        left.set_yscale("log")
        _label_decades(left.yaxis)
    left.set_ylabel("mean epistemic uncertainty")
    places = np.arange(len(layers))
    right.hlines(places, low, high, color=COLORS[0])
    right.plot(middle, places, "o", color=COLORS[0], markersize=3.0)
    right.set_yticks(places, [style.drawable(p.name) for p in manifest.gaussian], fontsize=5.5)
    right.invert_yaxis()
    right.set_ylabel("layer")
    if high.max() > 10.0 * low.min():  # within a decade a logarithmic axis has no labels
        right.set_xscale("log")
        _label_decades(right.xaxis)
    else:
        right.locator_params(axis="x", nbins=2)
        right.xaxis.set_major_formatter("{x:g}")
    right.set_xlabel("standard deviation at the end")
    for axes in more:  # a heat map, in the order of the dots
        values = np.log10(np.transpose([entry[run_folder.DEVIATIONS] for entry in rounds]))
        first, last = rounds[0]["round"], rounds[-1]["round"]
        extent = (first - 0.5, last + 0.5, len(values) - 0.5, -0.5)
        drawn = axes.imshow(
            values, aspect="auto", extent=extent, interpolation="nearest", cmap="cividis"
        )
        axes.grid(visible=False)
        axes.set_yticks([])
        axes.set_ylabel("layer, as in (b)")
        _label_rounds(axes)
        drawing.colorbar(drawn, ax=axes, label="log₁₀ √(mean σ²) by layer")
    style.label_panels(left, right, *more)
    return drawing, "Spread of the posterior"


def _label_decades(axis: Axis) -> None:
    from matplotlib.ticker import LogFormatter

    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(LogFormatter(minor_thresholds=(1.0, 0.3)))


PANELS = {
    TRAIN_LIKELIHOOD: "training NLL (nats)",
    TRAIN_DIVERGENCE: "divergence (nats)",
    "weight": "weight (%)",
    TRAIN_SECONDS: "seconds",
    TEST_ACCURACY: "own test accuracy (%)",
    f"{PERSONAL}accuracy": "personal model's accuracy (%)",
    f"{MEME}accuracy": "meme's accuracy (%)",
}
"""Panels' titles, by the clients' metric that they show."""


@register_figure("client-curves")
def client_curves(folder: RunFolder) -> tuple[MatplotlibFigure, str] | None:
    """Likelihood, divergence, weight and seconds of each client in each of its rounds.

    The negative log-likelihood is per training example, and the divergence from the prior is not;
    both are of the client's last epoch. Clients with test data also have their accuracy, or error,
    on them: of their personal models and their copies of the global model (memes).
    The curves reveal stragglers and clients of a heterogeneous partition that learn differently.

    Reference:
        Fischer et al. (2024), Eq. 6 (likelihood and divergence) and section 2.6 (the weights); Yang
        et al. (2023), Figs. 5 to 7 (the accuracies of each client's models).
    """
    rounds, clients, measured = measured_by_clients(folder)
    # Of networks of points the divergence is zero: a flat panel says nothing.
    drawn = [name for name in PANELS if np.nan_to_num(measured[name]).any()]
    if not drawn:
        return None
    columns = min(2, len(drawn))
    lines = -(-len(drawn) // columns)
    drawing = style.new_figure(3.6 * max(columns, 1.3), 1.0 + 2.2 * lines)
    grid = drawing.subplots(lines, columns, sharex=True, squeeze=False).ravel()
    for axes in grid[len(drawn) :]:
        axes.remove()
    panels = grid[: len(drawn)]
    named = style.names_of_classes(folder.client_names())
    for axes, name in zip(panels, drawn, strict=True):
        _draw_clients(axes, rounds, clients, measured[name], named)
        standardised = name == TRAIN_LIKELIHOOD and folder.holds(run_folder.PREDICTED_NUMBERS)
        axes.set_ylabel(STANDARDISED if standardised else PANELS[name])
        if "%" in PANELS[name]:
            style.percent_axis(axes.yaxis)
    handles, names = panels[0].get_legend_handles_labels()
    drawing.legend(handles, names, loc="outside lower center", ncols=min(5, len(names)))
    style.label_panels(*panels)
    shown = np.any([np.isfinite(measured[name]).any(axis=0) for name in drawn], axis=0)
    return drawing, f"What {shown.sum()} clients have measured in each round"


def measured_by_clients(folder: RunFolder) -> tuple[list[int], list[int], dict[str, Numbers]]:
    """Return rounds, clients and, by name, what these have measured: (rounds, clients) arrays.

    What is missing or not finite is NaN.
    """
    points: dict[str, dict[tuple[int, int], float]] = {name: {} for name in PANELS}
    for entry in folder.rounds():
        try:
            for client in entry.get(run_folder.PER_CLIENT, ()):
                at = entry["round"], int(client["client"])
                for name in (name for name in PANELS if client.get(name) is not None):
                    points[name][at] = float(client[name])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            where = f"{folder.path / run_folder.ROUNDS}, round {entry['round']}"
            raise DataError(f"{where}: {run_folder.PER_CLIENT} is corrupt: {error!r}") from error
    places = {at for of_name in points.values() for at in of_name}
    rounds, clients = (sorted({at[axis] for at in places}) for axis in (0, 1))
    found = {}
    for name, of_name in points.items():
        values = [[of_name.get((number, c), math.nan) for c in clients] for number in rounds]
        table = np.array(values, np.float64).reshape(len(rounds), len(clients))
        found[name] = np.where(np.isfinite(table), table, math.nan)
    return rounds, clients, found


def _draw_clients(
    axes: Axes, rounds: list[int], clients: list[int], values: Numbers, names: Sequence[str]
) -> None:
    known = np.isfinite(values)
    at, columns = np.array(rounds)[known.any(axis=1)], np.flatnonzero(known.any(axis=0))
    look: dict[str, Any] = {"marker": "o" if len(at) <= FEW_ROUNDS else "", "markersize": 3.0}
    if len(columns) <= 10:
        for index, column in enumerate(columns):
            client, own = clients[column], known[:, column]
            label = names[client] if client < len(names) else f"client {client}"
            points = np.array(rounds)[own], values[own, column]
            axes.plot(*points, **style.look_of(index), **look, label=label)
    else:
        lowest, low, median, high, highest = np.nanquantile(
            values[known.any(axis=1)], (0.0, 0.05, 0.5, 0.95, 1.0), axis=1
        )
        band: dict[str, Any] = {"color": COLORS[0], "linewidth": 0.0}
        axes.fill_between(at, lowest, highest, alpha=0.12, label="all clients", **band)
        axes.fill_between(at, low, high, alpha=0.25, label="5 to 95 % of the clients", **band)
        if len(at) == 1:  # a band of width 0 is invisible
            axes.vlines(at, lowest, highest, color=FAINT)
        axes.plot(at, median, color=INK, **look, label="median")
    _label_rounds(axes)


@register_figure("partition", needs=run_folder.PARTITION)
def partition_by_class(folder: RunFolder) -> tuple[MatplotlibFigure, str] | None:
    """Numbers of training examples of each class that each client holds.

    Reference:
        Hsu et al. (2019), "Measuring the effects of non-identical data distribution for federated
        visual classification", Fig. 1; Fischer et al. (2024), section 3.1 (the partitions).
    """
    with folder.decoding(run_folder.PARTITION):
        partition = folder.read_json(run_folder.PARTITION)
        if WHOLE in partition:  # a private run's, without numbers
            return None
        counts = np.array(partition["class_counts"], dtype=np.int64)
        examples = sum(partition["num_examples"])
        if counts.size and counts.ndim != 2:
            raise ValueError(f"counts of the shape {counts.shape}")
    if not counts.size:  # all nodes have their own data
        return None
    clients, classes = counts.shape
    width, height = 2.2 + min(10.0, 0.45 * classes), 1.6 + min(10.0, 0.26 * clients)
    what = "target" if folder.holds(run_folder.PREDICTED_NUMBERS) else "class"
    size = max(width, 4.5), max(height, 2.8)
    drawing, axes, image = style.draw_counts(size, counts, counts, most=240)
    axes.set(xlabel=what, ylabel="client", aspect="auto")
    for axis, names, count in (
        (axes.xaxis, folder.class_names(), classes),
        (axes.yaxis, folder.client_names(), clients),
    ):
        style.name_ticks(axis, style.names_of_classes(names or list(map(str, range(count)))), count)
    drawing.colorbar(image, label="training examples")
    return drawing, f"Partition of {examples:,} training examples"
