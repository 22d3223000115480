"""Results of a run, and how they are shown.

- ``run_folder``: the files of one run; ``files``: how these are written and read.
- ``environment``: on what a run was made.
- ``summary``: metrics, mean uncertainties and retention curves of the final predictions.
- ``figures``: one figure per file, drawn from a run folder.
- ``table``: tables for the terminal.
"""

from bfl.experiments.results.environment import describe_environment
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.results.summary import retention_curves, summarize, write_evaluation

__all__ = [
    "RunFolder",
    "describe_environment",
    "retention_curves",
    "summarize",
    "write_evaluation",
]
