"""Local training: a posterior in, epochs on some examples, a posterior out.

- ``task``: what there is to do, in which order, and what came out.
- ``learner``: one network's variables, loss and steps.
- ``trainer``: the training itself, traced once for all tasks; with noise, or a personal model.

Importing this package does not import TensorFlow; ``trainer`` does.
"""

from bfl.learning.training.task import LocalResult, LocalTask, PersonalTask, batches

__all__ = ["LocalResult", "LocalTask", "PersonalTask", "batches"]
