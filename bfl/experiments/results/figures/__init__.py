"""Registry of a run's figures, which are drawn from its folder alone."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from bfl.experiments.results.figures.style import image_of, styled
from bfl.experiments.results.run_folder import RunFolder
from bfl.registry import Component, Registry

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure


class Figure(Component):
    """A figure of a run, saved in ``figures/``.

    Attributes:
        needs: A file that the figure needs; empty: ``compose`` checks for its data.
    """

    needs: ClassVar[str] = ""

    def draw(self, folder: RunFolder, *, titled: bool = True) -> MatplotlibFigure | None:
        """Return the figure of a run, with or without its title; None if the run lacks its data."""
        if self.needs and not folder.holds(self.needs):
            return None
        with styled():
            figure = self.compose(folder)
            if figure is not None:
                if not titled:
                    figure.suptitle("")
                # Legends below axes move with them: the layout needs a second pass.
                figure.draw_without_rendering()
            return figure

    @abstractmethod
    def compose(self, folder: RunFolder) -> MatplotlibFigure | None:
        """Return the figure or None, like ``draw``; the style is already set."""


figures: Registry[Figure] = Registry("figure", "bfl.experiments.results.figures")


def draw_all(folder: RunFolder, kind: str = "") -> list[Path]:
    """Draw every figure for which the run has data, and return the files; same data, same bytes.

    ``kind`` is ``png``, ``svg``, ``pdf`` or ``none``; empty: the run's key ``figures``.
    """
    written = []
    settings = folder.config({})
    kind = kind or str(settings.get("figures", "png"))
    for name in figures.names() if kind != "none" else ():
        figure = figures.create(name, settings).draw(folder)
        if figure is not None:
            written.append(folder.write_figure(f"{name}.{kind}", image_of(figure, kind)))
    return written
