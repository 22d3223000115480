"""Base class and registry of the figures."""

from __future__ import annotations

import io
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from bfl.experiments.results.figures.style import styled
from bfl.experiments.results.run_folder import CONFIG, RunFolder
from bfl.registry import Component, Registry

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure

DOTS_PER_INCH = 150

_METADATA = {
    "png": ("Software",),
    "svg": ("Date", "Creator"),
    "pdf": ("Creator", "Producer", "CreationDate"),
}
"""Keys under which a file of a kind tells how it was made: left out."""


class Figure(Component):
    """One figure of a run, saved in ``figures/``.

    Attributes:
        needs: The file without which a run has no such figure; empty: ``compose`` finds out.
    """

    needs: ClassVar[str] = ""

    def draw(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure of a run, or None when the run has not left what it shows.

        Raises:
            DataError: A file of the run is there but corrupt.
        """
        if self.needs and not folder.holds(self.needs):
            return None
        with styled():
            figure = self.compose(folder)
            if figure is not None:
                # Legends below axes move with them: the layout is whole after the second time.
                figure.draw_without_rendering()
            return figure

    @abstractmethod
    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return what ``draw`` returns; a subclass writes this, under the style already set."""


figures: Registry[Figure] = Registry("figure", "bfl.experiments.results.figures")


def draw_all(folder: RunFolder, kind: str = "") -> list[Path]:
    """Draw every registered figure that the run has the data for, and return the files.

    The same data give the same bytes.

    Args:
        folder: The run.
        kind: ``png``, ``svg``, ``pdf`` or ``none``; empty: the run's own key ``figures``.

    Raises:
        DataError: A file of the run is there but corrupt.
        RunError: A figure cannot be written.
    """
    written = []
    settings = folder.config() if folder.holds(CONFIG) else {}
    kind = kind or str(settings.get("figures", "png"))
    for name in figures.names() if kind != "none" else ():
        figure = figures.create(name, settings).draw(folder)
        if figure is not None:
            written.append(folder.write_figure(f"{name}.{kind}", image_of(figure, kind)))
    return written


def png(figure: MatplotlibFigure) -> bytes:
    """Return a figure as a PNG file."""
    return image_of(figure, "png")


def image_of(figure: MatplotlibFigure, kind: str, name: str = "bfl") -> bytes:
    """Return a figure as a file of a kind, ``png``, ``svg`` or ``pdf``; its ids tell the name."""
    import matplotlib

    buffer = io.BytesIO()
    # Matplotlib's version and the date stay out, so that the same data give the same bytes.
    nothing = dict.fromkeys(_METADATA[kind])
    with styled(), matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(buffer, format=kind, dpi=DOTS_PER_INCH, metadata=nothing)
    return buffer.getvalue()
