"""bfl from Python: ``run`` and ``load`` give a ``Result``, which predicts; ``study`` a table.

- ``running``: ``run``; ``studies``: ``study``.
- ``result``: ``Result`` and ``load``.
- ``alone``: one run at a time in a process.
- ``evaluation``: a network evaluated on a labelled data set.
- ``network``: the networks that predict, and a plain Keras model.
- ``predictions``: what comes out.
"""

from bfl.api.predictions import Predictions
from bfl.api.result import Result, load
from bfl.api.running import run
from bfl.api.studies import study

__all__ = ["Predictions", "Result", "load", "run", "study"]
