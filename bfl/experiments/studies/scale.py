"""Reductions: a study cut down to what a machine can do, and said so on all that comes of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Any

from bfl.configuration import expanded
from bfl.errors import ConfigurationError, unknown_name
from bfl.experiments.studies.folder import StudyFolder
from bfl.experiments.studies.study import SEED, Choice, Run, Study

SEEDS = "seeds"
EXAMPLES = ("train-examples", "test-examples")
COUNTS = ("rounds", "local-epochs", "mc-samples", "evaluate-mc-samples")
REDUCIBLE = (*COUNTS, *EXAMPLES, SEEDS)
"""Configuration keys, and the number of seeds."""

IN_FILE = "at the scale of the study's file"
MORE_SEEDS = "more seeds than the study's file has"

GROWING = ("rounds", SEEDS)
"""Amounts that may become more in a study that has begun; runs that are there are gone on with."""


@dataclass(frozen=True)
class Scale:
    """A stated reduction of a study.

    Attributes:
        amounts: Amounts by name, sorted: below 1 a share of what the study has, from 1 a number,
            which raises nothing but the number of seeds.
    """

    amounts: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Scale:
        """Return the scale that ``rounds=0.05,train-examples=0.2,seeds=1`` states.

        Raises:
            ConfigurationError: It is not of that form, or names what cannot be reduced.
        """
        amounts: dict[str, float] = {}
        for pair in filter(None, (part.strip() for part in text.split(","))):
            name, _, number = (part.strip() for part in pair.partition("="))
            if name not in REDUCIBLE:
                raise ConfigurationError(f"--scale: {unknown_name('name', name, REDUCIBLE)}")
            if name in amounts:
                raise ConfigurationError(f"--scale: {name} is given twice")
            try:
                amount = float(number)
            except ValueError:
                amount = math.nan
            if not (0 < amount < 1 or (amount >= 1 and amount.is_integer())):
                raise ConfigurationError(
                    f"--scale: {name} is {number!r}; allowed: a share between 0 and 1, or a whole "
                    "number"
                )
            amounts[name] = amount
        return cls(dict(sorted(amounts.items())))

    @property
    def suffix(self) -> str:
        """The end of the name of a scaled study's folder.

        Seeds and rounds are not in it: with more of them the study goes on from what there is.
        """
        kept = {name: amount for name, amount in self.amounts.items() if name not in GROWING}
        return "".join(f"_{name}-{amount:g}" for name, amount in kept.items())

    def apply(self, study: Study) -> ScaledStudy:
        """Return the study with the runs that the reduction leaves, changed as it says.

        Raises:
            ConfigurationError: Seeds are to be fewer or more, and the study has no axis of seeds,
                or to be more, and it is not known which it has, or they set other keys as well.
        """
        with_seeds = self._with_seeds(study)
        runs = tuple(self._reduced(run) for run in with_seeds.runs())
        return ScaledStudy(with_seeds, self, runs, self._described(study, with_seeds, runs))

    def _with_seeds(self, study: Study) -> Study:
        """Return the study with its first seeds, or with further ones, as many as are asked for."""
        if SEEDS not in self.amounts:
            return study
        if SEED not in study.axes:
            raise ConfigurationError(f"--scale: {study.source} has no axis 'seed'")
        seeds, amount = study.axes[SEED], self.amounts[SEEDS]
        number = int(amount) if amount >= 1 else reduced(len(seeds), amount)
        kept = (*seeds[:number], *_further_seeds(study, number - len(seeds)))
        return replace(study, axes={**study.axes, SEED: kept})

    def _reduced(self, run: Run) -> Run:
        values = {**run.values}
        for key, amount in self.amounts.items():
            if key != SEEDS and (now := _number(run, key)) is not None:
                values[key] = (
                    reduced(int(now), amount)
                    if key in COUNTS
                    else reduced_examples(now, amount, key)
                )
        return replace(run, values=values)

    def _described(self, before: Study, with_seeds: Study, after: Sequence[Run]) -> str:
        """Return the reduction in words: from what the study has to what is left of it."""
        said, more = [], ""
        for name in self.amounts:
            if name == SEEDS:
                was, now = (len(study.axes[SEED]) for study in (before, with_seeds))
                changes = f"{was} → {now}"
                if now > was:
                    more = f"{MORE_SEEDS}: {changes}"
                    continue
            else:
                pairs = zip(with_seeds.runs(), after, strict=True)
                shown = (" → ".join(_shown(name, _number(r, name)) for r in pair) for pair in pairs)
                changes = " and ".join(dict.fromkeys(shown))
            said.append(f"{name} {changes}")
        down = f"scaled down: {', '.join(said)}" if said else ""
        return ", ".join(filter(None, (down, more)))


@dataclass(frozen=True)
class ScaledStudy:
    """A study with the runs that are made of it.

    Attributes:
        study: The study, with the seeds that are left or added.
        scale: The reduction.
        runs: The runs.
        note: The reduction in words, and seeds added; empty: none.
    """

    study: Study
    scale: Scale
    runs: tuple[Run, ...]
    note: str

    @property
    def said(self) -> str:
        """The reduction in words, or the images that the file itself leaves.

        A file may be a reduction of its own, so a study that is not scaled down is not called full.
        """
        if self.note and not self.note.startswith(MORE_SEEDS):
            return self.note
        left = []
        for name in EXAMPLES:
            given = dict.fromkeys(run.values.get(name, 0) for run in self.runs)
            numbers = [number for number in given if isinstance(number, int | float)]
            if any(numbers):
                left.append(f"{name} {' and '.join(_shown(name, n) for n in numbers)}")
        return ", ".join(filter(None, [IN_FILE, *left, self.note]))

    @property
    def folder_name(self) -> str:
        """The name of the study's folder."""
        return f"{self.study.name}{self.scale.suffix}"


def begin(folder: StudyFolder, scaled: ScaledStudy, environment: Mapping[str, Any]) -> None:
    """Write into a folder which study it is, and the environment: it is read by itself then.

    Raises:
        RunError: It cannot be written.
    """
    study = scaled.study
    folder.describe(
        {
            "title": study.title,
            "scale": dict(scaled.scale.amounts),
            "note": scaled.said,
            "runs": [run.name for run in scaled.runs],
            "environment": dict(environment),
            "file": {**study.tables, "name": study.name},
            "published": study.published.text if study.published else None,
        }
    )


def reduced(number: int, amount: float) -> int:
    """Return a number reduced: below 1 to a share, at least 1; from 1 to at most that number.

    Example:
        >>> reduced(400, 0.05), reduced(1, 0.05), reduced(400, 20), reduced(5, 20)
        (20, 1, 20, 5)
    """
    return max(1, round(number * amount)) if amount < 1 else min(number, int(amount))


def reduced_examples(now: float, amount: float, key: str) -> float:
    """Return a key such as ``train-examples`` reduced: 0 all, below 1 a share, from 1 a number.

    Raises:
        ConfigurationError: A share is to become a number, which may be more.
    """
    if now == 0:
        return float(amount)
    if amount < 1:
        return now * amount if now < 1 else float(reduced(int(now), amount))
    if now < 1:
        raise ConfigurationError(
            f"--scale: {key} is a share in the study, {now:g}, and {amount:g} may be more; give "
            "a share"
        )
    return min(now, amount)


def _further_seeds(study: Study, number: int) -> list[Choice]:
    """Return further seeds of a study: the smallest whole numbers that it does not have."""
    there = [choice.values.get(SEED) for choice in study.axes[SEED]]
    alone = all(choice.values.keys() == {SEED} for choice in study.axes[SEED])
    if number > 0 and not (alone and all(type(seed) is int for seed in there)):
        raise ConfigurationError(
            f"--scale: seeds can be at most {len(there)}, as the axis 'seed' of {study.source} has "
            "values that are no number or set other keys as well; write more of them into the file"
        )
    free = (seed for seed in count() if seed not in there)
    return [
        Choice({SEED: str(seed)}, {SEED: seed}, f"{SEED}-{seed}")
        for seed in islice(free, max(0, number))
    ]


def _number(run: Run, key: str) -> float | None:
    """Return the number that a run has for a key; None where it is none, to be refused later."""
    value = expanded(run.values)[key]
    return None if isinstance(value, str | bool) else float(value)


def _shown(name: str, value: float | None) -> str:
    return "all" if name in EXAMPLES and value == 0 else f"{value or 0:g}"
