"""The steps of a distillation: their learning rates, and after which of them models are kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class DistillationPlan:
    """Plan by which a student is trained.

    Attributes:
        batch_size: Images in a step, B.
        epochs: Visits of all images.
        rates: (S,) the rate η of each step.
        collected: (S,) whether the model after a step takes part in the average; if none does, the
            student is the last model.
        momentum: Share of the velocity that a step keeps.
        weight_decay: Multiple of the weights that is added to their gradient.
        loss_scale: What the mean cross-entropy per image is multiplied by.
        recompute_statistics: Whether an average's moving statistics are made anew from the images.
    """

    batch_size: int
    epochs: int
    rates: npt.NDArray[np.float32]
    collected: npt.NDArray[np.bool_]
    momentum: float
    weight_decay: float
    loss_scale: float = 1.0
    recompute_statistics: bool = False

    def segments(self) -> list[tuple[slice, bool]]:
        """Return the steps in runs that end where a model is collected, or at the end."""
        ends = [int(step) + 1 for step in np.flatnonzero(self.collected)]
        steps = len(self.rates)
        cuts = [*ends, steps] if not ends or ends[-1] < steps else ends
        starts = [0, *cuts[:-1]]
        return [
            (slice(start, end), bool(self.collected[end - 1]))
            for start, end in zip(starts, cuts, strict=True)
        ]


def steps_of(images: int, batch_size: int, epochs: int) -> int:
    """Return the number of steps S of so many epochs, the last batch of each filled up."""
    return epochs * -(-images // batch_size)


def cyclical_rates(
    steps: int, highest: float, lowest: float, cycle: int
) -> npt.NDArray[np.float32]:
    """Return rates (S,) that fall in a straight line in each cycle and jump back.

    η_i = (1 − t_i) highest + t_i lowest with t_i = ((i − 1) mod c + 1) / c for i = 1 ... S.

    Source: Izmailov et al. (2018), "Averaging weights leads to wider optima and better
    generalization", section 3.2.
    """
    place = (np.arange(steps) % cycle + 1) / cycle
    return np.asarray((1 - place) * highest + place * lowest, np.float32)


def collected_steps(steps: int, start: float, cycle: int) -> npt.NDArray[np.bool_]:
    """Return after which steps (S,) a model is collected: at the end of each cycle after a start.

    Args:
        steps: S.
        start: The last step before the first cycle that counts: below 1 a share of the steps.
        cycle: Steps in a cycle.
    """
    number = np.arange(1, steps + 1)
    first = round(start * steps) if start < 1 else start
    return np.asarray((number % cycle == 0) & (number > first))
