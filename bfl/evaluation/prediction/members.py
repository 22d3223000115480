"""Predictions of an ensemble, one member at a time, without those that are not finite."""

from __future__ import annotations

import numpy.typing as npt

from bfl.errors import NotFiniteError
from bfl.evaluation.prediction.predictions import Predictions
from bfl.evaluation.prediction.statistics import PredictionStatistics


class MemberPredictions:
    """The mean predictions of an ensemble's members; one whose logits are not finite is left out.

    One client may send values so large, and finite, that its model's logits overflow: that must not
    cost the others' predictions.
    """

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self._statistics = PredictionStatistics()
        self._bad = self._of = 0

    def add(self, name: str, logits: npt.ArrayLike) -> bool:
        """Take in a member's logits (N, C); return whether they are finite and it takes part.

        Raises:
            ValueError: They have another shape than those of the member before.
        """
        try:
            self._statistics.add_logits(logits)
        except NotFiniteError as error:
            self.left_out.append(name)
            self._bad += error.bad
            self._of += error.of
            return False
        return True

    def result(self) -> Predictions:
        """Return the mean predictions of the members that take part.

        Raises:
            NotFiniteError: There have been members, and all are left out.
            ValueError: There has been none.
        """
        if self.left_out and not self._statistics.samples:
            raise NotFiniteError(self._bad, self._of)
        return self._statistics.result()
