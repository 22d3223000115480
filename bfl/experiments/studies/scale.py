"""Scales of studies: reductions for smaller machines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from bfl.configuration import expanded
from bfl.configuration.configuration import Value
from bfl.errors import ConfigurationError, unknown_name

SEEDS = "seeds"
EXAMPLES = ("train-examples", "test-examples")
COUNTS = ("rounds", "local-epochs", "mc-samples", "evaluate-mc-samples")
REDUCIBLE = (*COUNTS, *EXAMPLES, SEEDS)
"""Configuration keys, and the number of seeds."""

GROWING = ("rounds", SEEDS)
"""Amounts that may increase in a study that has begun: existing runs are extended."""


@dataclass(frozen=True)
class Scale:
    """A reduction of a study; see ``Study.scaled``.

    Attributes:
        amounts: Amounts by name, sorted: below 1 a share of the study's amount, from 1 an upper
            limit, or the number of seeds.
    """

    amounts: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Scale:
        """Return the scale of a text such as ``rounds=0.05,train-examples=0.2,seeds=1``.

        Raises:
            ConfigurationError: The text does not have that form, or a name cannot be reduced.
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
        """The suffix of a scaled study's folder name.

        It names neither seeds nor rounds: with more of them a study continues in its folder.
        """
        kept = {name: amount for name, amount in self.amounts.items() if name not in GROWING}
        return "".join(f"_{name}-{amount:g}" for name, amount in kept.items())

    def reduced(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return a run's keys, reduced.

        Raises:
            ConfigurationError: A share of the examples would become a number, which may be greater.
        """
        changed = {**values}
        for key, amount in self.amounts.items():
            now = None if key == SEEDS else number_of(values, key)
            if now is not None:
                whole = key in COUNTS
                changed[key] = (
                    reduced(int(now), amount) if whole else reduced_examples(now, amount, key)
                )
        return changed


def reduced(number: int, amount: float) -> int:
    """Return a reduced number: a share of it, at least 1, or at most the amount from 1.

    Example:
        >>> reduced(400, 0.05), reduced(1, 0.05), reduced(400, 20), reduced(5, 20)
        (20, 1, 20, 5)
    """
    return max(1, round(number * amount)) if amount < 1 else min(number, int(amount))


def reduced_examples(now: float, amount: float, key: str) -> float:
    """Return a reduced number of examples: 0 means all, below 1 a share, from 1 a number."""
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


def number_of(values: Mapping[str, Value], key: str) -> float | None:
    """Return a run's number for a key; None if it is not a number, which is refused later."""
    value = expanded(values)[key]
    return None if isinstance(value, str | bool) else float(value)


def shown(name: str, value: float | None) -> str:
    """Return an amount as text.

    Example:
        >>> shown("train-examples", 0.0), shown("rounds", 20.0)
        ('all', '20')
    """
    return "all" if name in EXAMPLES and value == 0 else f"{value or 0:g}"
