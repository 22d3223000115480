"""Studies: many runs from one file, and their tables and figures."""

from bfl.experiments.studies.study import Run, Study, read_study

__all__ = ["Run", "Study", "read_study"]
