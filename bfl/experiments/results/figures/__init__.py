"""Figures of a run, found by registration and drawn from its folder alone.

Matplotlib is imported when something is drawn, not before.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from bfl.experiments.results.figures.style import image_of, styled
from bfl.experiments.results.run_folder import CONFIG, RunFolder
from bfl.registry import Component, Registry

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure


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
