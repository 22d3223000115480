"""Measurements of each client, round by round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bfl.errors import DataError
from bfl.experiments.results.figures.base import Figure, figures
from bfl.experiments.results.figures.style import (
    COLORS,
    DASHES,
    FAINT,
    INK,
    label_panels,
    new_figure,
    percent_axis,
    set_title,
)
from bfl.experiments.results.round_log import PER_CLIENT, ROUNDS
from bfl.experiments.results.run_folder import RunFolder
from bfl.federation.client_metrics import (
    MEME,
    PERSONAL,
    TEST_ACCURACY,
    TRAIN_DIVERGENCE,
    TRAIN_LIKELIHOOD,
    TRAIN_SECONDS,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

PANELS = {
    TRAIN_LIKELIHOOD: "training NLL (nats)",
    TRAIN_DIVERGENCE: "divergence (nats)",
    "weight": "weight (%)",
    TRAIN_SECONDS: "seconds",
    TEST_ACCURACY: "own test accuracy (%)",
    f"{PERSONAL}accuracy": "personal model's accuracy (%)",
    f"{MEME}accuracy": "meme's accuracy (%)",
}
"""Panels, drawn where clients have measured the number, and their titles."""

PERCENTS = {"weight", TEST_ACCURACY, f"{PERSONAL}accuracy", f"{MEME}accuracy"}

TOLD_APART = 10
"""Up to so many clients have a colour and a name; of more, the median and the spread are drawn."""

FEW_ROUNDS = 30

Curves = dict[int, list[tuple[int, float]]]


@figures.register("client-curves")
class ClientCurves(Figure):
    """Likelihood, divergence, weight and seconds of each client in each round it took part in.

    The negative log-likelihood is that per training example, the divergence from the prior the
    whole one, both of the client's last epoch. Where clients have test data of their own, their
    accuracy on them as well; where they evaluate, those of their personal models and of their
    copies of the global model, the memes. Clients of a heterogeneous partition that learn what the
    others do not show here, as do stragglers.

    Reference:
        Fischer et al. (2024), Eq. 6 (likelihood and divergence) and section 2.6 (the weights); Yang
        et al. (2023), Figs. 5 to 7 (the accuracies of each client's models).
    """

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure, or None when no round has a record of its clients."""
        curves = {name: client_curves(folder, name) for name in PANELS}
        drawn = [name for name in PANELS if curves[name]]
        if not drawn:
            return None
        columns = min(2, len(drawn))
        lines = -(-len(drawn) // columns)
        figure = new_figure(3.6 * max(columns, 1.3), 1.0 + 2.2 * lines)
        grid = figure.subplots(lines, columns, sharex=True, squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place >= len(drawn):
                axes.remove()
                continue
            _panel(axes, drawn[place], curves[drawn[place]])
            axes.xaxis.set_tick_params(labelbottom=True)
        handles, names = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=min(5, len(names)))
        label_panels(*list(grid.flat)[: len(drawn)])
        clients = len({client for by_client in curves.values() for client in by_client})
        set_title(figure, f"What {clients} clients have measured in each round", folder)
        return figure


def client_curves(folder: RunFolder, name: str) -> Curves:
    """Return (round, value) of each client that has a finite value of that name, by partition id.

    Raises:
        DataError: A round's record of its clients is not what it should be.
    """
    curves: Curves = {}
    for entry in folder.rounds():
        try:
            for client in entry.get(PER_CLIENT, ()):
                value = client.get(name)
                if value is not None and math.isfinite(value):
                    points = curves.setdefault(int(client["client"]), [])
                    points.append((int(entry["round"]), float(value)))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            where = f"{folder.path / ROUNDS}, round {entry['round']}"
            raise DataError(f"{where}: {PER_CLIENT} is corrupt: {error!r}") from error
    return dict(sorted(curves.items()))


def _panel(axes: Axes, name: str, curves: Curves) -> None:
    from matplotlib.ticker import MaxNLocator

    rounds = sorted({number for points in curves.values() for number, _ in points})
    marker = "o" if len(rounds) <= FEW_ROUNDS else ""
    if len(curves) <= TOLD_APART:
        for index, (client, points) in enumerate(curves.items()):
            axes.plot(
                *zip(*points, strict=True),
                color=COLORS[index % len(COLORS)],
                linestyle=DASHES[(index + index // len(COLORS)) % len(DASHES)],
                marker=marker,
                markersize=3.0,
                label=f"client {client}",
            )
    else:
        _spread(axes, rounds, curves, marker)
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axes.set_ylabel(PANELS[name])
    if name in PERCENTS:
        percent_axis(axes.yaxis)


def _spread(axes: Axes, rounds: Sequence[int], curves: Mapping[int, Any], marker: str) -> None:
    """Draw the median of the clients of each round, and bands from 5 to 95 % and min to max."""
    by_round: dict[int, list[float]] = {number: [] for number in rounds}
    for points in curves.values():
        for number, value in points:
            by_round[number].append(value)
    levels = (0, 5, 50, 95, 100)
    lowest, low, median, high, highest = np.transpose(
        [np.percentile(by_round[number], levels) for number in rounds]
    )
    band: dict[str, Any] = {"color": COLORS[0], "linewidth": 0.0}
    axes.fill_between(rounds, lowest, highest, alpha=0.12, label="all clients", **band)
    axes.fill_between(rounds, low, high, alpha=0.25, label="5 to 95 % of the clients", **band)
    if len(rounds) == 1:  # a band of no width cannot be seen
        axes.vlines(rounds, lowest, highest, color=FAINT)
    axes.plot(rounds, median, color=INK, marker=marker, markersize=3.0, label="median")
