"""bfl from Python: ``run`` and ``load`` give a ``Result``, which predicts; ``study`` a table.

- ``running``: ``run`` and ``study``.
- ``result``: ``Result`` and ``load``.
- ``evaluation``: a network evaluated on a labelled data set.
- ``network``: the networks that predict, one user at a time, and a plain Keras model.
- ``predictions``: what comes out.
"""

from bfl.api.predictions import Predictions
from bfl.api.result import Result, load
from bfl.api.running import run, study

__all__ = ["Predictions", "Result", "load", "run", "study"]
