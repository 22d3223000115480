"""Studies: many runs from one file, and the tables and figures made of them.

- ``study``: a study, and the runs that it expands to; ``reading``, ``extending``: its TOML file.
- ``columns``, ``published``: the numbers of its tables; ``scale``: reductions.
- ``planning``: everything that can be refused before the first run; ``runner``.
- ``folder``, ``run_result``, ``gathering``: results of runs, kept, gathered and merged.
- ``opening``: a study found by its file, name or folder.
- ``table``, ``formats``, ``figures``: ours next to the published numbers.
- ``claims``, ``pages``: the orders that a file declares, tested; pages and reports of results.
"""

from bfl.experiments.studies.reading import read_study
from bfl.experiments.studies.scale import Scale
from bfl.experiments.studies.study import Run, Study

__all__ = ["Run", "Scale", "Study", "read_study"]
