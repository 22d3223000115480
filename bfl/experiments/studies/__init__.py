"""Studies: many runs from one file, and their tables and figures.

- ``study``, ``reading``: a study and its runs; its TOML file.
- ``columns``, ``scale``: the numbers of its tables; reductions.
- ``planning``, ``runner``: checks before the first run; making the runs.
- ``folder``, ``run_result``, ``gathering``: a study's folder; results, gathered and merged.
- ``table``, ``figures``: our numbers next to the published ones.
- ``claims``, ``pages``: tests of declared orders; texts of tables, reports and pages.
"""

from bfl.experiments.studies.reading import read_study
from bfl.experiments.studies.scale import Scale
from bfl.experiments.studies.study import Run, Study

__all__ = ["Run", "Scale", "Study", "read_study"]
