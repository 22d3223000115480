"""Figures of a study: one kind per file, found by registration, drawn from the runs' folders.

Rows are overlaid, every combination of the axes has a panel, and a band shows the spread over the
seeds. Matplotlib is imported when something is drawn, not before.
"""

from bfl.experiments.studies.figures.base import StudyFigure, draw_study, study_figures

__all__ = ["StudyFigure", "draw_study", "study_figures"]
