"""Whether sorting by an uncertainty gains more than an order at random does by chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bfl.evaluation.metrics import metrics
from bfl.experiments.results.collapse import MOST_AT_FLOOR
from bfl.experiments.results.summary import RANDOM
from bfl.experiments.studies.columns import Column
from bfl.experiments.studies.comparisons import NOT, mark
from bfl.experiments.studies.orders import HOW_SURE, plain, signed
from bfl.experiments.studies.paired import Paired, compare_pairs
from bfl.experiments.studies.run_result import GAIN, RunResult
from bfl.posteriors.floor import FRACTION_AT_FLOOR

DEVIATIONS = 2.0
"""A gain of fewer chance deviations says nothing, see ``random_gain``."""


@dataclass(frozen=True)
class AgainstChance:
    """The gains of a line's runs, each beside two chance deviations of its own test predictions.

    Attributes:
        gain: Their mean, in the column's unit; NaN where one is not finite.
        chance: The mean of two deviations of one run's gain, were its order at random.
        beyond: In how many runs the gain is beyond two deviations, to the side of the mean.
        paired: Gains less two deviations over the seeds, both to the side of the mean.
    """

    gain: float
    chance: float
    beyond: int
    paired: Paired

    @property
    def is_beyond(self) -> bool:
        """Whether the mean gain is beyond two deviations, to either side."""
        return abs(self.gain) > self.chance


def control_of(column: Column) -> str:
    """Return the metric that says what chance reaches in a column of gains; empty: it is none."""
    found = (name for name in metrics.names() if column.metric.startswith(f"{GAIN}{name}-"))
    control = next((f"{GAIN}{name}-{RANDOM}" for name in found), "")
    return "" if control == column.metric else control


def against_chance(column: Column, results: Sequence[RunResult]) -> AgainstChance | None:
    """Return how the gains of a line's runs stand to chance; None where the column has no control.

    Under random orders a run's gain has the mean 0 and the deviation that its control tells, so the
    mean over n runs varies less than by the deviation of one, which is taken for it: the greater n,
    the more cautious this is.

    Args:
        column: A column.
        results: The line's finished runs; those without gain or control are passed over.
    """
    control = control_of(column)
    found = [(r.number(column.metric), r.number(control)) for r in results if control]
    pairs = [
        (column.scale * a, DEVIATIONS * column.scale * b)
        for a, b in found
        if a is not None and b is not None
    ]
    if not pairs:
        return None
    gains, chances = [a for a, _ in pairs], [b for _, b in pairs]
    gain, chance = math.fsum(gains) / len(pairs), math.fsum(chances) / len(pairs)
    side = -1.0 if gain < 0.0 else 1.0
    towards = [side * each for each in gains]
    beyond = sum(a > b for a, b in zip(towards, chances, strict=True))
    return AgainstChance(gain, chance, beyond, compare_pairs(towards, chances))


def chance_said(column: Column, found: AgainstChance) -> str:
    """Return how a line's gain stands to chance, in words."""
    if not math.isfinite(found.gain) or not math.isfinite(found.chance):
        lost = found.paired.one_not_finite or found.paired.other_not_finite
        return f"no gain, as it is not finite in {lost} of {found.paired.pairs} runs"
    where = f"{'beyond' if found.is_beyond else 'within'} two chance deviations"
    where += ", surest where it errs" if found.is_beyond and found.gain < 0.0 else ""
    digits = column.decimals
    numbers = f"{signed(found.gain, digits)} where chance reaches ±{plain(found.chance, digits)}"
    seeds = f"in {found.beyond} of {found.paired.pairs} runs beyond"
    return f"{where} ({numbers}; {seeds}{_over_the_seeds(found, digits)})"


def _over_the_seeds(found: AgainstChance, digits: int) -> str:
    paired = found.paired
    if not paired.testable:
        return ""
    sure = mark(paired)
    how = "not significant over the seeds" if sure == NOT else HOW_SURE[sure]
    numbers = (paired.difference, paired.low, paired.high)
    difference, low, high = (signed(number or 0.0, digits) for number in numbers)
    return f"; {how}: {difference}, {low} to {high}, p = {paired.p_value:.2g}"


def floor_said(results: Sequence[RunResult]) -> str:
    """Return that most of a line's standard deviations lie at the floor, in words; else nothing.

    There pooling has made them what ``scale-floor`` says, and the epistemic part of predictions is
    the floor's: above rounding noise, and no knowledge.
    """
    shares = [share for r in results if (share := r.number(FRACTION_AT_FLOOR)) is not None]
    mean = math.fsum(shares) / len(shares) if shares else 0.0
    return f"{mean:.0%} of the standard deviations at scale-floor" if mean > MOST_AT_FLOOR else ""
