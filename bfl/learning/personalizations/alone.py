"""Clients train models of their own and nothing else."""

from __future__ import annotations

from typing import Any, ClassVar

from bfl.learning.personalizations.base import BothModels, PersonalModel, personalizations


@personalizations.register("alone")
class Alone(PersonalModel):
    """The personal model learns from the client's labels alone, and the meme is not trained.

    What a client sends back is where its training would have begun, so nothing of its data is in
    it, and the global model stays what it was. What is reported of training is the personal
    model's.
    """

    trains_meme: ClassVar[bool] = False

    def step(self, both: BothModels) -> Any:
        """Take the personal model's step."""
        return both.personal.learn(both.personal.forward())
