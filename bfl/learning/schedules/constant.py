"""The same learning rate in every round."""

from __future__ import annotations

from bfl.learning.schedules.base import Schedule, schedules


@schedules.register("constant")
class ConstantSchedule(Schedule):
    """The same learning rate in every round."""

    def learning_rate(self, initial: float, server_round: int, rounds: int) -> float:
        """Return the initial rate."""
        return initial
