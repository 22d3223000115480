"""Results of a run, and their presentation.

- ``run_folder``, ``files``: the files of a run; reading and writing them.
- ``environment``: versions, machine and commit of a run.
- ``summary``: metrics, mean uncertainties and retention curves of the final predictions.
- ``figures``: figures drawn from a run's folder.
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
