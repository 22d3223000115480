"""Figures of a run: one per file, found by registration, drawn from its folder alone.

Matplotlib is imported when something is drawn, not before.
"""

from bfl.experiments.results.figures.base import Figure, draw_all, figures

__all__ = ["Figure", "draw_all", "figures"]
