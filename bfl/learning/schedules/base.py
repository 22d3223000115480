"""What a schedule is: a factor of the learning rate, as a function of the round alone."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bfl.registry import Component, Registry


class Schedule(Component, ABC):
    """Says what becomes of the initial learning rate from round to round."""

    @abstractmethod
    def learning_rate(self, initial: float, server_round: int) -> float:
        """Return the learning rate of a round.

        Args:
            initial: The rate η of the first rounds.
            server_round: The round, from 1.
        """


schedules: Registry[Schedule] = Registry("schedule", "bfl.learning.schedules")
