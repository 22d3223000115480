"""Studies: many runs from one file, and their tables and figures.

- ``study``: a study and its runs, from a TOML file; ``columns``: the numbers that it asks for.
- ``runner``: makes the missing runs, one process a run.
- ``results``: two data frames of what is there, in a study's folder.
- ``table``, ``claims``, ``figures``, ``pages``: what is made of these two.
"""

from bfl.experiments.studies.study import Run, Study, read_study

__all__ = ["Run", "Study", "read_study"]
