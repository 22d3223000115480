"""Studies: many runs from one file, and the tables and figures made of them.

- ``study``: what a study is, and the runs that it expands to.
- ``reading``: studies read from TOML; ``columns`` and ``published``: what their tables show.
- ``scale``: a study cut down to what a machine can do, and the words that say so.
- ``checks``: everything that can be refused before the first run.
- ``folder``: a study's folder; ``runner``, ``engines``, ``estimate``, ``progress``: running it.
- ``run_result``, ``gathering``: what finished runs have given, from wherever it lies.
- ``merging``, ``growing``: results of several machines put together, of a study that has grown.
- ``comparisons``: finished runs in pairs; ``images``: how exactly test images tell an accuracy.
- ``expected_orders``: the orders that a file declares; ``orders``: which of them are found.
- ``table``, ``formats``: ours next to the published numbers, as Markdown, CSV and LaTeX.
- ``figures``: a study's figures, one per file, found by registration.
"""

from bfl.experiments.studies.reading import read_study
from bfl.experiments.studies.scale import Scale
from bfl.experiments.studies.study import Run, Study

__all__ = ["Run", "Scale", "Study", "read_study"]
