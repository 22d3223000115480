"""Personalizations: models of its own that a client trains besides the global one's copy.

The copy of the global model that a client trains and sends back is called the *meme*, as in the
methods' papers. The personal model is never sent, and is state like any other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import Field, field_validator

from bfl.errors import ConfigurationError
from bfl.federation.client_metrics import MEME, PERSONAL
from bfl.federation.parts import Arrays, Trained, TwoSidedPart
from bfl.learning.models import architectures
from bfl.learning.objectives import SoftLabels
from bfl.registry import Registry
from bfl.texts import assigned

if TYPE_CHECKING:
    from bfl.learning.networks.network import Network
    from bfl.learning.training.learner import Batch, Learner, Pass

_ENTRY = re.compile(r"([a-z][a-z0-9_-]*)\s*(?::\s*([0-9]+))?")
_GRAMMAR = (
    "a model's word, or several with numbers of clients, as in 'mlp:2,lenet5:2,cnn2:6'; the last "
    "one may have no number, for all clients that are left"
)


@dataclass(frozen=True)
class Assignment:
    """Architectures' words by number of clients, in the order of partition ids.

    No number means all clients that are left; without any model they have the federation's own.
    """

    models: tuple[tuple[str, int | None], ...]

    @classmethod
    def parse(cls, text: str) -> Assignment:
        """Return what a text such as ``mlp:2,lenet5:2,cnn1:3,cnn2:3`` says."""
        models: list[tuple[str, int | None]] = []
        for entry in text.split(",") if text.strip() else ():
            match = _ENTRY.fullmatch(entry.strip().lower())
            if not match or (match[2] is not None and int(match[2]) < 1):
                raise ConfigurationError(f"personal-models is '{text}'; allowed: {_GRAMMAR}")
            architectures.create(match[1])
            models.append((match[1], int(match[2]) if match[2] else None))
        if any(count is None for _, count in models[:-1]):
            raise ConfigurationError(f"personal-models is '{text}'; allowed: {_GRAMMAR}")
        return cls(tuple(models))

    def words(self, clients: int) -> tuple[str, ...]:
        """Return the model's word of each client; empty where it is the federation's own."""
        if not self.models:
            return ("",) * clients
        return tuple(self.models[k][0] for k in assigned(self.models, clients, "personal-models"))


@dataclass(frozen=True)
class Model:
    """The meme or the personal model on one mini-batch, after ``number`` steps, in the graph."""

    learner: Learner
    batch: Batch
    key: Any
    number: Any
    rate: Any

    def forward(self) -> Pass:
        """Return a pass over the batch in training mode; its ``logits`` are (B, classes)."""
        return self.learner.forward(self.batch.images, self.key)

    def learn(self, passed: Pass, soft_labels: SoftLabels | None = None) -> Any:
        """Make a step from a pass; return what was measured, see ``Learner.gradients``."""
        return self.learner.learn(passed, self.batch, self.number, self.rate, soft_labels)


@dataclass(frozen=True)
class BothModels:
    """Both models of a client on one mini-batch, and the network of the meme at its mean."""

    meme: Model
    personal: Model
    mean: Network
    mean_key: Any

    def meme_at_its_mean(self) -> Any:
        """Return the meme's logits (B, classes) at its mean as it is now, as it predicts."""
        from bfl.keras import tf

        self.meme.learner.network.copy_values(self.mean)
        images = self.meme.batch.images
        return tf.stop_gradient(self.mean.logits(images, self.mean_key, training=False))


class Personalization(TwoSidedPart):
    """Says what personal model a client trains, and how it and the meme take their steps."""

    active: ClassVar[bool] = False  # whether there is a personal model
    trains_meme: ClassVar[bool] = True

    @property
    def models(self) -> frozenset[str]:
        """Trained models that a client has to evaluate, of ``MEME`` and ``PERSONAL``."""
        return frozenset({MEME} if self.trains_meme else ()) | (
            {PERSONAL} if self.active else set()
        )


class PersonalModel(Personalization):
    """A personalization with a personal model, and what all of them have for settings."""

    state_name: ClassVar[str] = "personal"
    active: ClassVar[bool] = True

    personal_models: str = ""
    """architectures of the personal models by number of clients, as in 'mlp:2,lenet5:2,cnn2:6'; the
    last may have no number, for all others; empty: the model's"""
    personal_learning_rate: float = Field(1e-3, gt=0.0, le=1.0)
    """learning rate of the personal models, in all rounds"""

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
        """Architectures of the clients' personal models."""
        return Assignment.parse(self.personal_models)

    def step(self, both: BothModels) -> Any:
        """Take the steps of a mini-batch, inside the graph; return what is reported of it."""
        raise NotImplementedError

    def conclude(self, state: Arrays, trained: Trained) -> tuple[Arrays, Arrays]:
        """Return nothing to send, and the personal model, with the word that it has begun."""
        return {}, {"begun": np.array(True), **trained.personal}


personalizations: Registry[Personalization] = Registry(
    "personalization", "bfl.learning.personalizations"
)


@personalizations.register("none")
class NoPersonalization(Personalization):
    """Clients train their copy of the global model and nothing else."""


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


SOFT_SHARE = 0.5  # of another model's predictions in a loss; the labels have the rest


@personalizations.register("distillation")
class Distillation(PersonalModel):
    """The personal model learns from the labels and from the meme at its mean, after its step.

    L = ½ L_CE + ½ KL[q_meme ‖ q_personal], on each mini-batch after the meme's own step, with
    q_meme the predictions of the meme's mean. The meme does not see the personal model.

    Source: Yang et al. (2023), "A novel Bayesian federated learning framework to address
    multi-dimensional heterogeneity problem" (HBFL), Eq. 4.2 and Algorithm 1, lines 5 to 8. The
    paper is silent on the shares, and on a temperature of the predictions; a half and none are
    those of the code of FML, whose setting it takes.
    """

    def step(self, both: BothModels) -> Any:
        """Take the meme's step, and the personal model's from what the meme then says."""
        measured = both.meme.learn(both.meme.forward())
        soft_labels = SoftLabels(both.meme_at_its_mean(), SOFT_SHARE)
        both.personal.learn(both.personal.forward(), soft_labels)
        return measured


@personalizations.register("mutual-distillation", aliases=("mutual",))
class MutualDistillation(PersonalModel):
    """The personal model and the meme learn from the labels and from each other.

    L_personal = ½ L_CE + ½ KL[q_meme ‖ q_personal] and L_meme = ½ L_CE + ½ KL[q_personal ‖ q_meme],
    on each mini-batch with the predictions that both have before they take their steps. So the
    meme, and through it the global model, learns from personal models.

    Source: Shen et al. (2020), "Federated mutual learning", with the shares of its code; Yang et
    al. (2023), Eq. 2.5.
    """

    def step(self, both: BothModels) -> Any:
        """Take both steps from what both models said before."""
        meme, personal = both.meme.forward(), both.personal.forward()
        from_personal = SoftLabels(personal.logits, SOFT_SHARE)
        from_meme = SoftLabels(meme.logits, SOFT_SHARE)
        measured = both.meme.learn(meme, from_personal)
        both.personal.learn(personal, from_meme)
        return measured
