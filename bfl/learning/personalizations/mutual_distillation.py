"""FML's personal model: it and the meme learn from each other."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from bfl.learning.personalizations.base import BothModels, personalizations
from bfl.learning.personalizations.distillation import Distilling


@personalizations.register("mutual-distillation", aliases=("mutual",))
class MutualDistillation(Distilling):
    """The personal model and the meme learn from the labels and from each other.

    L_personal = α L_CE + (1 − α) KL[q_meme ‖ q_personal] and
    L_meme = β L_CE + (1 − β) KL[q_personal ‖ q_meme], on each mini-batch with the predictions that
    both have before they take their steps, each as it is trained. So the meme, and through it the
    global model, learns from personal models. With a distillation temperature τ both logits are
    divided by τ and the divergences are multiplied by τ².

    Source: Shen et al. (2020), "Federated mutual learning"; Yang et al. (2023), Eq. 2.5. α = β =
    0.5 and τ = 1 are those of FML's code.
    """

    meme_label_share: float = Field(
        0.5,
        ge=0.0,
        le=1.0,
        description="share of the labels in a meme's loss; the rest is the personal model's",
    )

    def step(self, both: BothModels) -> Any:
        """Take both steps from what both models said before."""
        meme, personal = both.meme.forward(), both.personal.forward()
        measured = both.meme.learn(meme, self._soft(personal.logits, self.meme_label_share))
        both.personal.learn(personal, self.from_meme(meme.logits))
        return measured
