"""Warnings about a run's uncertainty: it has collapsed; the closing round has worsened it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bfl.closing.feature_density import DENSITY
from bfl.experiments.results.foreign import BEFORE_CLOSING
from bfl.experiments.results.run_folder import DATA, RunFolder
from bfl.posteriors.posterior import FRACTION_AT_FLOOR

CLASSES = "classification"
LEAST_SHARE = 1e-3
MOST_AT_FLOOR = 0.5

CLOSING = f"bayesian-head+{DENSITY}"
REMEDY = (
    f'; the score {DENSITY} does, which closing="{CLOSING}" adds, and "bfl close FOLDER --closing '
    f'{CLOSING}" to a run that is over'
)
REMEDY_OF_NODES = (
    f"; the score {DENSITY} does, which the run gets while its clients are there, by "
    f'closing="{CLOSING}" resume=true and its name'
)
OTHER_RULES = '; rules such as strategy="nwa" keep it longer'
CLOSES = f"; the score {DENSITY} of its closing round does"


def collapse(numbers: Mapping[str, Any], samples: int) -> str | None:
    """Return a warning if a variational posterior's epistemic uncertainty has collapsed, or None.

    It has collapsed if one of these holds:

    - the mean epistemic uncertainty is at most 1/1,000 of the sum of aleatoric and epistemic (Eq. 9
      of Fischer et al. 2024), with at least two Monte Carlo samples;
    - more than half of all standard deviations lie at ``scale-floor``.

    Args:
        numbers: A round's or a run's metrics; ``mean-epistemic``, ``mean-aleatoric`` and
            ``fraction-at-scale-floor`` may be missing.
        samples: The number of Monte Carlo samples of the uncertainties.
    """
    found = []
    if samples > 1 and "mean-epistemic" in numbers:
        epistemic = float(numbers["mean-epistemic"])
        whole = epistemic + float(numbers["mean-aleatoric"])
        if epistemic <= LEAST_SHARE * whole:
            found.append(
                f"the mean epistemic uncertainty of the test predictions is {epistemic:.1e}, at "
                f"most 1/1,000 of the whole, {whole:.1e}"
            )
    at_floor = float(numbers.get(FRACTION_AT_FLOOR, 0.0))
    if at_floor > MOST_AT_FLOOR:
        found.append(f"{at_floor:.0%} of all standard deviations lie at scale-floor")
    if not found:
        return None
    return (
        f"the epistemic uncertainty has collapsed: {', and '.join(found)}. The model predicts as "
        "one with point weights would, and no longer tells what it does not know"
    )


NLL = "negative-log-likelihood"
MOST_LOST = 0.01
"""Nats an example that a closing may lose without a warning; our choice."""


def worse_closed(numbers: Mapping[str, float]) -> str | None:
    """Return a warning if the closing has raised the test images' negative log-likelihood, or None.

    Args:
        numbers: A run's final metrics; those from before the closing may be missing.
    """
    before, closed = numbers.get(f"{BEFORE_CLOSING}{NLL}"), numbers.get(NLL)
    if before is None or closed is None or not closed > before + MOST_LOST:
        return None
    return (
        f"the closing round has raised the NLL of the test images from {before:.3f} to "
        f"{closed:.3f}: the last layer is too certain, as training has seen its images. Close "
        f'again without the last layer, "bfl close FOLDER --closing {DENSITY}"; or train with '
        f'calibration-share=0.1 and closing="{CLOSING}+temperature"'
    )


@dataclass
class CollapseWatch:
    """Warns once in a run, resumed or not, that the epistemic uncertainty has collapsed."""

    folder: RunFolder
    say: Callable[[str], None]

    def look(self, numbers: Mapping[str, Any], samples: int, when: str) -> None:
        """Assess a variational posterior by its numbers; see ``collapse``.

        Raises:
            RunError: The warning cannot be written.
        """
        found = collapse(numbers, samples)
        if found and not any("has collapsed" in told for told in self.folder.warnings()):
            config = self.folder.config()
            simulated = self.folder.read_json(DATA, {"train": ""}).get("train") is not None
            remedy = REMEDY if simulated else REMEDY_OF_NODES
            remedy = CLOSES if DENSITY in config.get("closing", "") else remedy
            # Closing rounds are for classification.
            found += remedy if config.get("task", CLASSES) == CLASSES else OTHER_RULES
            self.say(f"warning, {when}: {found}")
            self.folder.append_warning(f"{when}: {found}")
