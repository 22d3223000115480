"""What a personalization is: a personal model that a client trains beside the global one's copy.

The copy of the global model that a client trains and sends back is called the *meme*, as in the
methods' papers. The personal model may have any architecture. It lives on its client from round to
round, is never sent, and is state like any other: what a round has made of it counts once the
server has pooled the round's update.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np
from pydantic import Field, field_validator

from bfl.federation.client_metrics import MEME, PERSONAL
from bfl.federation.parts import Arrays, Part, Trained
from bfl.learning.objectives import SoftLabels
from bfl.learning.personalizations.assignment import Assignment
from bfl.registry import Registry


class Model(Protocol):
    """The meme or the personal model on one mini-batch, inside the graph."""

    def forward(self) -> Any:
        """Return a pass over the batch in training mode; its ``logits`` are (B, classes)."""

    def learn(self, passed: Any, soft_labels: SoftLabels | None = None) -> Any:
        """Make a step from a pass; return what was measured.

        Args:
            passed: The pass.
            soft_labels: What the logits are compared with beside the labels.
        """


class BothModels(Protocol):
    """Both models of a client on one mini-batch."""

    @property
    def meme(self) -> Model:
        """The meme."""

    @property
    def personal(self) -> Model:
        """The personal model."""

    def meme_at_its_mean(self) -> Any:
        """Return the meme's logits (B, classes) at its mean as it is now, as it predicts."""


class Personalization(Part):
    """Says what personal model a client trains, and how it and the meme take their steps.

    Attributes:
        active: Whether there is a personal model.
        trains_meme: Whether the meme is trained at all.
    """

    active: ClassVar[bool] = False
    trains_meme: ClassVar[bool] = True

    @property
    def models(self) -> frozenset[str]:
        """Which trained models a client has to judge, of ``MEME`` and ``PERSONAL``."""
        return frozenset({MEME} if self.trains_meme else ()) | (
            {PERSONAL} if self.active else set()
        )


class PersonalModel(Personalization):
    """A personalization with a personal model, and what all of them have for settings."""

    state_name: ClassVar[str] = "personal"
    active: ClassVar[bool] = True

    personal_models: str = Field(
        "",
        description="architectures of the personal models by number of clients, as in "
        "'mlp:2,lenet5:2,cnn2:6'; the last may have no number, for all others; empty: the model's",
    )
    personal_learning_rate: float = Field(
        1e-3, gt=0.0, le=1.0, description="learning rate of the personal models, in all rounds"
    )

    @field_validator("personal_models")
    @classmethod
    def _models_exist(cls, text: str) -> str:
        Assignment.parse(text)
        return text

    def has(self) -> frozenset[str]:
        """Return that a model on the client learns from its data as they are."""
        return super().has() | {"personal-models"}

    @property
    def assignment(self) -> Assignment:
        """Which client has which architecture."""
        return Assignment.parse(self.personal_models)

    def step(self, both: BothModels) -> Any:
        """Take the steps of a mini-batch, inside the graph; return what is reported of it."""
        raise NotImplementedError

    def begin_client(self, received: Any) -> Arrays:
        """Return nothing: a personal model begins as its network does."""
        return {}

    def conclude(self, state: Arrays, trained: Trained) -> tuple[Arrays, Arrays]:
        """Return nothing to send, and the personal model, with the word that it has begun."""
        return {}, {"begun": np.array(True), **trained.personal}


personalizations: Registry[Personalization] = Registry(
    "personalization", "bfl.learning.personalizations"
)
