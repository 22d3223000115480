"""Arrays that clients send besides their posteriors: summed or averaged, as they are declared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bfl.federation.parts import Arrays, DeclaredArray


class Combination:
    """The sums over the pooled clients; the memory does not grow with their number.

    Args:
        declared: The arrays that each client sends.
    """

    def __init__(self, declared: Sequence[DeclaredArray]) -> None:
        self._declared = declared
        self._sums: dict[str, npt.NDArray[np.float64]] = {
            array.name: np.zeros(array.shape) for array in declared
        }
        self._weight = 0.0

    def add(self, arrays: Arrays, weight: float) -> None:
        """Add what a client has sent, in float64.

        Args:
            arrays: The arrays, checked.
            weight: The client's weight in the pooling, in the scale of all others'.
        """
        self._weight += weight
        for array in self._declared:
            sent = arrays[array.name].astype(np.float64)
            self._sums[array.name] += sent if array.combined == "sum" else weight * sent

    def combined(self) -> dict[str, npt.NDArray[np.float64]]:
        """Return the sum or the weighted mean of each array, by name.

        Raises:
            ValueError: A mean is asked for, and no client with a weight has been added.
        """
        if self._weight <= 0 and any(array.combined != "sum" for array in self._declared):
            raise ValueError("nothing to average: no client with a positive weight was added")
        return {
            array.name: self._sums[array.name]
            if array.combined == "sum"
            else self._sums[array.name] / self._weight
            for array in self._declared
        }
