"""bfl from Python: ``run`` and ``load`` give a ``Result``, which predicts.

- ``running``: ``run``.
- ``result``: ``Result`` and ``load``.
- ``alone``: one run at a time in a process.
- ``evaluation``: a network evaluated on a labelled data set.
- ``network``: the networks that predict, and a plain Keras model.
- ``predictions``: what comes out.
"""

from bfl.api.predictions import Predictions
from bfl.api.result import Result, load
from bfl.api.running import run

__all__ = ["Predictions", "Result", "load", "run"]
