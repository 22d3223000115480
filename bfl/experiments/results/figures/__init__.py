"""Registry of a run's figures, which are drawn from its folder alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import new_class
from typing import TYPE_CHECKING, Any, ClassVar

from bfl.experiments.results.figures.style import image_of, set_title, styled
from bfl.experiments.results.run_folder import RunFolder
from bfl.registry import Component, Registry

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure


class Figure(Component):
    """A figure of a run, saved in ``figures/``; ``needs`` is a file without which there is none."""

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

Drawing = Callable[[RunFolder], "tuple[MatplotlibFigure, str] | None"]
"""A function that returns the figure of a run and its title, or None if the run lacks its data."""


def register_figure(name: str, needs: str = "") -> Callable[[Drawing], Drawing]:
    """Register a function as a figure, whose description is the function's docstring."""

    def register(drawing: Drawing) -> Drawing:
        def compose(_: Figure, folder: RunFolder) -> MatplotlibFigure | None:
            drawn = drawing(folder)
            if drawn is None:
                return None
            set_title(*drawn, folder)
            return drawn[0]

        members: dict[str, Any] = {"needs": needs, "compose": compose}
        members |= {"__doc__": drawing.__doc__, "__module__": drawing.__module__}
        figures.register(name)(
            new_class(name, (Figure,), exec_body=lambda own: own.update(members))
        )
        return drawing

    return register


def draw_all(folder: RunFolder, kind: str = "") -> list[Path]:
    """Draw every figure for which the run has data, and return the files; same data, same bytes.

    ``kind`` is ``png``, ``svg``, ``pdf`` or ``none``; empty: the run's key ``figures``.
    """
    written = []
    settings = folder.config({})
    kind = kind or str(settings.get("figures", "png"))
    for name in figures.names() if kind != "none" else ():
        drawn = figures.create(name, settings).draw(folder)
        if drawn is not None:
            written.append(folder.write(f"figures/{name}.{kind}", image_of(drawn, kind)))
    return written
