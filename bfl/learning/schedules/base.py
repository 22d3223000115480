"""What a schedule is: a factor of the learning rate, as a function of the round."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bfl.registry import Component, Registry


class Schedule(Component, ABC):
    """Says what becomes of the initial learning rate from round to round."""

    def depends_on_rounds(self) -> bool:
        """Return whether a round's rate depends on how many rounds there are to be.

        Then a run cannot be given more of them: those made would have had other rates.
        """
        return False

    @abstractmethod
    def learning_rate(self, initial: float, server_round: int, rounds: int) -> float:
        """Return the learning rate of a round.

        Args:
            initial: The rate η of the first rounds.
            server_round: The round, from 1.
            rounds: How many rounds the run is to have.
        """


schedules: Registry[Schedule] = Registry("schedule", "bfl.learning.schedules")
