"""HBFL's personal model: it learns from the labels and from the meme, and the meme not from it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from bfl.learning.objectives import SoftLabels
from bfl.learning.personalizations.base import BothModels, PersonalModel, personalizations


class Distilling(PersonalModel):
    """A personal model that learns from another one's predictions as well as from the labels."""

    personal_label_share: float = Field(
        0.5,
        ge=0.0,
        le=1.0,
        description="share of the labels in a personal model's loss; the rest is the meme's",
    )
    personal_softening: float = Field(
        1.0, gt=0.0, le=1e3, description="by what logits are divided where models are compared"
    )

    def from_meme(self, logits: Any) -> SoftLabels | None:
        """Return the soft labels of the meme for the personal model; None if they do not count."""
        return self._soft(logits, self.personal_label_share)

    def _soft(self, logits: Any, share_of_labels: float) -> SoftLabels | None:
        if share_of_labels == 1.0:
            return None
        return SoftLabels(logits, 1.0 - share_of_labels, self.personal_softening)


@personalizations.register("distillation")
class Distillation(Distilling):
    """The personal model learns from the labels and from the meme at its mean, after its step.

    L = α L_CE + (1 − α) KL[q_meme ‖ q_personal], on each mini-batch after the meme's own step, with
    q_meme the predictions of the meme's mean (of other networks, of its values) in the mode in
    which it predicts. With a distillation temperature τ both logits are divided by τ and the
    divergence is multiplied by τ². The meme does not see the personal model.

    Source: Yang et al. (2023), "A novel Bayesian federated learning framework to address
    multi-dimensional heterogeneity problem" (HBFL), Eq. 4.2 and Algorithm 1, lines 5 to 8. The
    paper is silent on α and τ; 0.5 and 1 are those of the code of FML, whose setting it takes.
    """

    def step(self, both: BothModels) -> Any:
        """Take the meme's step, and the personal model's from what the meme then says."""
        measured = both.meme.learn(both.meme.forward())
        soft_labels = self.from_meme(both.meme_at_its_mean())
        both.personal.learn(both.personal.forward(), soft_labels)
        return measured
