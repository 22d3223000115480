"""Figures of rounds and clients: learning curves, spreads, clients' metrics, partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bfl.evaluation.regression import ERROR
from bfl.experiments.results import run_folder
from bfl.experiments.results.figures import style
from bfl.experiments.results.figures.style import COLORS, INK
from bfl.experiments.results.run_folder import WHOLE, RunFolder
from bfl.experiments.results.table import VALIDATION
from bfl.federation.client_metrics import (
    MEME,
    PERSONAL,
    TEST_ACCURACY,
    TRAIN_DIVERGENCE,
    TRAIN_LIKELIHOOD,
    TRAIN_SECONDS,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as MatplotlibFigure

ACCURACY = "accuracy"
LIKELIHOOD = "negative-log-likelihood"
FEW_ROUNDS = 30


def finite_points(rounds: Sequence[Mapping[str, Any]], metric: str) -> list[tuple[int, float]]:
    """Return pairs (round, value) of the rounds with a finite value."""
    values = [(entry["round"], entry.get(metric)) for entry in rounds]
    return [(number, float(v)) for number, v in values if v is not None and np.isfinite(v)]


def learning_curve(folder: RunFolder) -> tuple[MatplotlibFigure, str] | None:
    """Test metrics by evaluated round, before any closing; dashed on data of the server, if any.

    Reference:
        Fischer et al. (2024), section 3.3 (the metrics).
    """
    rounds = folder.rounds()
    first = ERROR if finite_points(rounds, ERROR) else ACCURACY
    curves = {metric: finite_points(rounds, metric) for metric in (first, LIKELIHOOD)}
    if not any(curves.values()):
        return None
    drawing = style.new_figure(7.2, 3.2)
    panels = drawing.subplots(1, 2)
    for axes, (metric, points), color in zip(panels, curves.items(), COLORS, strict=False):
        _draw_line(axes, points, color)
        axes.set_ylabel(metric.replace("-", " "))
        if points:
            axes.set_title(f"last {points[-1][1]:.3g}", loc="right")
        if held := finite_points(rounds, f"{VALIDATION}{metric}"):
            axes.plot(*np.transpose(held), color=INK, linestyle="--")
    style.label_panels(*panels)
    return drawing, "Learning curve"


def _label_rounds(axes: Axes) -> None:
    axes.set_xlabel("round")
    style.whole_numbers(axes.xaxis, nbins=8)
    axes.xaxis.set_tick_params(labelbottom=True)  # also where the panel below shares it


def _draw_line(axes: Axes, points: list[tuple[int, float]], color: str) -> None:
    _label_rounds(axes)
    if points:
        marker = "o" if len(points) <= FEW_ROUNDS else ""
        axes.plot(*np.transpose(points), color=color, marker=marker, markersize=3.0)


def posterior_spread(folder: RunFolder) -> tuple[MatplotlibFigure, str] | None:
    """Mean epistemic uncertainty by round, and standard deviations by layer at the end.

    A layer's line spans the middle 90 % of its Gaussian parameters' final standard deviations, with
    a dot at the median. If the epistemic uncertainty vanishes, the posterior has collapsed.

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
    drawing = style.new_figure(7.2, max(3.2, 0.9 + 0.13 * len(layers)))
    left, right = drawing.subplots(1, 2)
    points = [(n, v) for n, v in finite_points(folder.rounds(), "mean-epistemic") if v > 0.0]
    _draw_line(left, points, COLORS[2])
    if points:
        left.set_yscale("log")
        _label_decades(left.yaxis)
    left.set_ylabel("mean epistemic uncertainty")
    places = np.arange(len(layers))
    right.hlines(places, low, high, color=COLORS[0])
    right.plot(middle, places, "o", color=COLORS[0], markersize=3.0)
    right.set_yticks(places, [parameter.name for parameter in manifest.gaussian], fontsize=5.5)
    right.invert_yaxis()
    right.set_ylabel("layer")
    if high.max() > 10.0 * low.min():  # within a decade a logarithmic axis has no labels
        right.set_xscale("log")
        _label_decades(right.xaxis)
    else:
        right.locator_params(axis="x", nbins=2)
        right.xaxis.set_major_formatter("{x:g}")
    right.set_xlabel("standard deviation at the end")
    style.label_panels(left, right)
    return drawing, "Spread of the posterior"


def _label_decades(axis: Axis) -> None:
    from matplotlib.ticker import LogFormatter

    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(LogFormatter(minor_thresholds=(1.0, 0.3)))


PANELS = {
    TRAIN_LIKELIHOOD: "training NLL (nats)",
    TRAIN_DIVERGENCE: "divergence (nats)",
    "weight": "weight",
    TRAIN_SECONDS: "seconds",
    TEST_ACCURACY: "own test accuracy",
    f"{PERSONAL}accuracy": "personal model's accuracy",
    f"{MEME}accuracy": "meme's accuracy",
}
"""Panels' titles, by the clients' metric that they show."""


def client_curves(folder: RunFolder) -> tuple[MatplotlibFigure, str] | None:
    """Numbers that each client has measured in each of its rounds.

    The negative log-likelihood is per training example, and the divergence from the prior is not;
    both are of the client's last epoch. Clients with test data also have their accuracy, or error,
    on them: of their personal models and their copies of the global model (memes).
    The curves reveal stragglers and clients of a heterogeneous partition that learn differently.
    More than ten clients are grey, with their median.

    Reference:
        Fischer et al. (2024), Eq. 6 (likelihood and divergence) and section 2.6 (the weights); Yang
        et al. (2023), Figs. 5 to 7 (the accuracies of each client's models).
    """
    measured = measured_by_clients(folder)
    if not measured:
        return None
    columns = min(2, len(measured))
    lines = -(-len(measured) // columns)
    drawing = style.new_figure(3.6 * max(columns, 1.3), 1.0 + 2.2 * lines)
    grid = drawing.subplots(lines, columns, sharex=True, squeeze=False).ravel()
    for axes in grid[len(measured) :]:
        axes.remove()
    names = folder.client_names()
    for axes, (name, values) in zip(grid, measured.items(), strict=False):
        few = len(values.columns) <= 10
        marker = "o" if len(values) <= FEW_ROUNDS else ""
        for place, (client, of_client) in enumerate(values.items()):
            known, number = of_client.dropna(), int(str(client))
            called = names[number] if number < len(names) else f"client {number}"
            look = style.look_of(place) if few else {"color": style.GRID}
            axes.plot(known, marker=marker, markersize=3.0, label=called if few else None, **look)
        if not few:
            axes.plot(values.median(axis=1), color=INK, marker=marker, ms=3.0, label="median")
        axes.set_ylabel(PANELS[name])
        _label_rounds(axes)
    handles, labels = grid[0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=min(5, len(labels)))
    style.label_panels(*grid[: len(measured)])
    clients = {client for values in measured.values() for client in values.columns}
    return drawing, f"What {len(clients)} clients have measured in each round"


def measured_by_clients(folder: RunFolder) -> dict[str, pd.DataFrame]:
    """Return what clients have measured, by name: a row a round, and a column a client.

    What is not finite is missing, and so is what is zero everywhere, as the divergence of points.
    """
    import pandas as pd

    with folder.decoding(run_folder.ROUNDS):
        entries = [
            {**entry, "round": record["round"], "client": int(entry["client"])}
            for record in folder.rounds()
            for entry in record.get(run_folder.PER_CLIENT, ())
        ]
        frame = pd.DataFrame(entries, columns=["round", "client", *PANELS])
        frame = frame.astype(dict.fromkeys(PANELS, np.float64))
    found = {}
    for name in PANELS:
        table = frame.pivot(index="round", columns="client", values=name)
        table = table.replace([np.inf, -np.inf], np.nan).dropna(axis="columns", how="all")
        if table.fillna(0.0).to_numpy().any():
            found[name] = table
    return found


def partition_by_class(folder: RunFolder) -> tuple[MatplotlibFigure, str] | None:
    """Numbers of training examples of each class that each client holds.

    Reference:
        Hsu et al. (2019), "Measuring the effects of non-identical data distribution for federated
        visual classification", Fig. 1; Fischer et al. (2024), section 3.1 (the partitions).
    """
    partition = folder.read_json(run_folder.PARTITION, {})
    # A private run's has no numbers, and nodes' own data are not the server's to count.
    if WHOLE in partition or not partition.get("class_counts"):
        return None
    with folder.decoding(run_folder.PARTITION):
        held = [n for n, of_client in enumerate(partition["class_counts"]) if of_client is not None]
        counts = np.array([partition["class_counts"][n] for n in held], dtype=np.int64)
        clients, classes = counts.shape
    called = folder.client_names()
    size = max(2.2 + min(10.0, 0.45 * classes), 4.5), max(1.6 + min(10.0, 0.26 * clients), 2.8)
    drawing, axes, image = style.draw_counts(size, counts, counts, most=240)
    what = "target" if folder.holds(run_folder.PREDICTED_NUMBERS) else "class"
    axes.set(xlabel=what, ylabel="client", aspect="auto")
    for axis, names, count in (
        (axes.xaxis, folder.class_names(), classes),
        (axes.yaxis, [called[n] if n < len(called) else str(n) for n in held], clients),
    ):
        style.name_ticks(axis, style.short_names(names or list(map(str, range(count)))), count)
    drawing.colorbar(image, label="training examples")
    return drawing, f"Partition of {counts.sum():,} training examples"
