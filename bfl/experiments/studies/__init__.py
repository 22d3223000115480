"""Studies: many runs from one file, and the tables and figures made of them.

- ``study``: a study, and the runs that it expands to; ``reading``: its TOML file.
- ``columns``: the numbers of its tables; ``scale``: reductions.
- ``planning``: everything that can be refused before the first run; ``runner``.
- ``folder``, ``run_result``, ``gathering``: a study's folder; results kept, gathered and merged.
- ``table``, ``figures``: ours next to the published numbers.
- ``claims``, ``pages``: the orders that a file declares, tested; tables, reports and pages.
"""

from bfl.experiments.studies.reading import read_study
from bfl.experiments.studies.scale import Scale
from bfl.experiments.studies.study import Run, Study

__all__ = ["Run", "Scale", "Study", "read_study"]
