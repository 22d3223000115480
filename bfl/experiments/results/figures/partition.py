"""Numbers of examples by client and class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bfl.errors import DataError
from bfl.experiments.results.figures.base import Figure, figures
from bfl.experiments.results.figures.style import INK, new_figure, set_title
from bfl.experiments.results.identity import WHOLE
from bfl.experiments.results.run_folder import PARTITION, RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MatplotlibFigure

WRITTEN = 240
"""Up to so many cells have their number written into them."""


@figures.register("partition")
class PartitionFigure(Figure):
    """The number of training examples of each class that each client holds.

    Reference:
        Hsu et al. (2019), "Measuring the effects of non-identical data distribution for federated
        visual classification", Fig. 1; Fischer et al. (2024), section 3.1 (the partitions).
    """

    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure, or None when nobody has written who holds what."""
        from matplotlib.ticker import MaxNLocator

        if not folder.holds(PARTITION):
            return None
        try:
            partition = folder.partition()
            if WHOLE in partition:  # of a private run
                return None
            counts = np.array(partition["class_counts"], dtype=np.int64)
            if counts.size and counts.ndim != 2:
                raise ValueError(f"counts of the shape {counts.shape}")
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{folder.path / PARTITION} is corrupt: {error!r}") from error
        if not counts.size:  # every node has data of its own
            return None
        clients, classes = counts.shape
        width, height = 2.2 + min(10.0, 0.45 * classes), 1.6 + min(10.0, 0.26 * clients)
        figure = new_figure(max(width, 4.5), max(height, 2.8))
        axes = figure.subplots()
        image = axes.imshow(counts, cmap="Blues", vmin=0, aspect="auto", interpolation="nearest")
        axes.grid(visible=False)
        axes.set_xlabel("class")
        axes.set_ylabel("client")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True))
        if counts.size <= WRITTEN:
            _write(axes, counts)
        figure.colorbar(image, label="training examples")
        set_title(figure, f"Partition of {counts.sum():,} training examples", folder)
        return figure


def _write(axes: Axes, counts: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
    """Write the numbers into their cells, where they can be read on both ends of the colours."""
    dark = counts.max() / 2
    axes.set_xticks(range(counts.shape[1]))
    axes.set_yticks(range(counts.shape[0]))
    for (client, label), count in np.ndenumerate(counts):
        if count:
            color = "white" if count > dark else INK
            axes.text(
                label, client, str(count), ha="center", va="center", color=color, fontsize=6.5
            )
