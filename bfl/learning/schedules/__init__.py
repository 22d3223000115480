"""Schedules: a factor of the learning rate, as a function of the round."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from pydantic import Field, ValidationInfo, field_validator

from bfl.registry import Component, Registry
from bfl.texts import numbers


class Schedule(Component, ABC):
    """Says what becomes of the initial learning rate from round to round."""

    def depends_on_rounds(self) -> bool:
        """Return whether a round's rate depends on how many rounds there are to be.

        Then a run cannot be given more of them: those made would have had other rates.
        """
        return False

    @abstractmethod
    def learning_rate(self, initial: float, server_round: int, rounds: int) -> float:
        """Return the learning rate of a round, from 1, of a run of so many; ``initial`` is η."""


schedules: Registry[Schedule] = Registry("schedule", "bfl.learning.schedules")


@schedules.register("constant")
class ConstantSchedule(Schedule):
    """The same learning rate in every round."""

    def learning_rate(self, initial: float, server_round: int, rounds: int) -> float:
        """Return the initial rate."""
        return initial


@schedules.register("cosine")
class CosineSchedule(Schedule):
    """η · ½ (1 + cos(π (round − 1) / rounds)): from η in the first round to near 0 in the last.

    Source: Loshchilov and Hutter (2017), "SGDR: Stochastic gradient descent with warm restarts",
    Eq. 5, with one period, no least rate, and a step a round.
    """

    def depends_on_rounds(self) -> bool:
        """Return that it does: half of it is over after half of the rounds."""
        return True

    def learning_rate(self, initial: float, server_round: int, rounds: int) -> float:
        """Return the rate of the round."""
        return initial * 0.5 * (1.0 + math.cos(math.pi * (server_round - 1) / rounds))


@schedules.register("exponential")
class ExponentialSchedule(Schedule):
    """η · exp(−decay · max(0, round − silent rounds)).

    Source: Fischer et al. (2024), section 3.3: η = 0.001, "a factor of .04 every round after a
    silent period of 50 aggregation rounds".
    """

    lr_decay: float = Field(0.04, ge=0.0)
    """what the log of the learning rate loses a round, once it decays"""
    lr_silent_rounds: int = Field(50, ge=0)
    """rounds before the learning rate decays"""

    def learning_rate(self, initial: float, server_round: int, rounds: int) -> float:
        """Return the decayed rate."""
        return initial * math.exp(-self.lr_decay * max(0, server_round - self.lr_silent_rounds))


@schedules.register("step", aliases=("piecewise-constant",))
class StepSchedule(Schedule):
    """η times the factor of the last milestone that is over; η before the first.

    A milestone below 1 is a share of the run's rounds, from 1 on it is a number of rounds: "0.3" of
    40 rounds and "12" both change the rate from round 13 on. Shares are rounded up to whole rounds.

    Source: FedBE (2021), appendix B.2: 0.01 in round r "if r < 0.3R, 0.001 if 0.3R ≤ r < 0.6R, and
    0.0001 otherwise", r counted from 0. Its code compares with r > 0.3R and so on: of 40 rounds
    milestones "0,1,13,25,37" with factors "0.5,1,0.2,0.1,0.01".
    """

    lr_milestones: str = "0.3,0.6"
    """after how many rounds the learning rate changes: below 1 a share of the run's rounds, from 1
    a number; with commas"""
    # There are to be as many as milestones, whichever is given.
    lr_factors: str = Field("0.1,0.01", validate_default=True)
    """what multiple of the initial learning rate it is after each milestone; with commas"""

    @field_validator("lr_milestones")
    @classmethod
    def _are_milestones(cls, text: str) -> str:
        given = numbers(text)
        if not given or not all(n >= 0 and (n < 1 or n % 1 == 0) for n in given):
            allowed = "shares of the rounds from 0 to below 1, or whole numbers of rounds"
            raise ValueError(f'{allowed}, as in "0.3,0.6"')
        return text

    @field_validator("lr_factors")
    @classmethod
    def _are_factors(cls, text: str, info: ValidationInfo) -> str:
        factors = numbers(text)
        if not factors or min(factors) <= 0:
            raise ValueError('numbers greater than 0, as in "0.1,0.01"')
        milestones = info.data.get("lr_milestones", text)
        if len(factors) != len(numbers(milestones)):
            raise ValueError(f"as many factors as lr-milestones has milestones ({milestones!r})")
        return text

    def depends_on_rounds(self) -> bool:
        """Return whether a milestone is a share of the rounds."""
        return any(0 < number < 1 for number in numbers(self.lr_milestones))

    def learning_rate(self, initial: float, server_round: int, rounds: int) -> float:
        """Return the rate after the milestones that are over."""
        factor = 1.0
        reached = -1
        pairs = zip(numbers(self.lr_milestones), numbers(self.lr_factors), strict=True)
        for number, then in pairs:
            # Of 30 rounds a tenth is 3, though 0.1 * 30 is a little more.
            over = int(number) if number >= 1 else math.ceil(number * rounds - 1e-9)
            if reached <= over < server_round:
                reached, factor = over, then
        return initial * factor
