"""Studies: many runs from one file, and the tables and figures made of them.

- ``study``: what a study is, and the runs that it expands to.
- ``reading``: studies read from TOML; ``columns`` and ``published``: what their tables show.
- ``scale``: a study cut down to what a machine can do, and the words that say so.
- ``checks``: everything that can be refused before the first run.
- ``folder``: a study's folder; ``runner``, ``engines``, ``estimate``, ``progress``: running it.
- ``run_result``, ``gathering``: what finished runs have given, from wherever it lies.
- ``merging``, ``growing``: results of several machines put together, of a study that has grown.
- ``paired``, ``resolution``, ``comparisons``: which orders the results carry.
- ``expected_orders``: the orders that a file expects; ``orders``, ``verdicts``: the sentences that
  say whether the results carry them.
- ``table``, ``formats``: ours beside the published numbers, as Markdown, CSV and LaTeX.
- ``figures``: a study's figures, one per file, found by registration.
"""

from bfl.experiments.studies.reading import read_study
from bfl.experiments.studies.scale import Scale
from bfl.experiments.studies.study import Run, Study

__all__ = ["Run", "Scale", "Study", "read_study"]
