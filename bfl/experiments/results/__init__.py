"""Results of a run, and their presentation."""

from bfl.experiments.results.environment import describe_environment
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.results.summary import retention_curves, summarize, write_evaluation

__all__ = ["RunFolder", "describe_environment", "retention_curves", "summarize", "write_evaluation"]
