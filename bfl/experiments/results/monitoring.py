"""Monitoring of a run after each round: the collapse of its epistemic uncertainty."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bfl.closing.feature_density import DENSITY
from bfl.evaluation.prediction.predictions import FloatArray
from bfl.experiments.results.run_folder import RunFolder
from bfl.experiments.results.summary import auroc
from bfl.posteriors.posterior import FRACTION_AT_FLOOR

VALIDATION = "validation-"  # prefix of the names of metrics on the server's own images


LEAST_SHARE, MOST_AT_FLOOR = 1e-2, 0.5
ERROR_AUROC, CHANCE_DEVIATION = "epistemic-error-auroc", "chance-deviation"
CLOSING = f"bayesian-head+{DENSITY}"
CLOSABLE = {
    "task": "classification",
    "example-privacy": "none",
    "shared": "all",
    "pretrain-examples": 0,
}
"""Keys of a run that may have this closing, if nothing that goes out has noise."""


def collapse(numbers: Mapping[str, Any], samples: int) -> str | None:
    """Return a warning if a variational posterior's epistemic uncertainty has collapsed, or None.

    It has collapsed if one of these holds:

    - the mean epistemic uncertainty is below 1 % of the sum of aleatoric and epistemic (Eq. 9 of
      Fischer et al. 2024), with at least two Monte Carlo samples;
    - it tells wrong predictions from right ones no better than chance, by two standard deviations;
    - more than half of all standard deviations lie at ``scale-floor``.

    Args:
        numbers: A round's or a run's metrics, any of which may be missing.
        samples: The number of Monte Carlo samples of the uncertainties.
    """
    found = []
    if samples > 1 and "mean-epistemic" in numbers:
        epistemic = float(numbers["mean-epistemic"])
        whole = epistemic + float(numbers["mean-aleatoric"])
        if epistemic < LEAST_SHARE * whole:
            found.append(
                f"the mean epistemic uncertainty of the test predictions is {epistemic:.1e}, below "
                f"{LEAST_SHARE:.0%} of the whole, {whole:.1e}"
            )
        auroc = float(numbers.get(ERROR_AUROC, 1.0))
        if auroc <= 0.5 + 2.0 * float(numbers.get(CHANCE_DEVIATION, 0.0)):
            found.append(f"it tells wrong predictions no better than chance (AUROC {auroc:.2f})")
    at_floor = float(numbers.get(FRACTION_AT_FLOOR, 0.0))
    if at_floor > MOST_AT_FLOOR:
        found.append(f"{at_floor:.0%} of all standard deviations lie at scale-floor")
    if not found:
        return None
    return (
        f"the epistemic uncertainty has collapsed: {', and '.join(found)}. The model predicts as "
        "one with point weights would, and no longer tells what it does not know"
    )


def error_auroc(epistemic: FloatArray, wrong: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Return how well the epistemic part (N,) tells ``wrong`` predictions (N,) from right ones.

    That is the AUROC, and its standard deviation by chance (Mann and Whitney, 1947); nothing where
    fewer than five are wrong, or right.
    """
    positive, negative = int(wrong.sum()), int((~wrong).sum())
    if min(positive, negative) < 5:
        return {}
    chance = math.sqrt((positive + negative + 1) / (12.0 * positive * negative))
    return {ERROR_AUROC: auroc(wrong, epistemic), CHANCE_DEVIATION: chance}


@dataclass
class CollapseWatch:
    """Warns once in a run, resumed or not, that the epistemic uncertainty has collapsed."""

    folder: RunFolder
    say: Callable[[str], None]

    def look(self, numbers: Mapping[str, Any], samples: int, when: str) -> None:
        """Assess a variational posterior by its numbers; see ``collapse``."""
        found = collapse(numbers, samples)
        if not found or any("has collapsed" in text for text in self.folder.warnings()):
            return
        config = self.folder.config()
        remedy = f'the score {DENSITY} does, which closing="{CLOSING}" adds'
        if not self.folder.nodes_have_data:
            remedy += f', and "bfl close {self.folder.path} --closing {CLOSING}" once it is over'
        refused = any(config.get(key, word) != word for key, word in CLOSABLE.items())
        if refused or "noise" in config.get("outgoing", ""):
            remedy = 'rules such as strategy="nwa" keep it longer'
        elif DENSITY in config.get("closing", ""):
            remedy = f"the score {DENSITY} of its closing round does"
        self.say(f"warning, {when}: {found}; {remedy}")
        self.folder.append_warning(f"{when}: {found}; {remedy}")
