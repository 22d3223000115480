"""Time left of a study, estimated from the runs made so far."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bfl.configuration import Configuration

Kind = tuple[Any, ...]


def kind(configuration: Configuration) -> Kind:
    """Return what the time for an epoch of a round depends on."""
    keys = configuration.keys
    network = (configuration.words["model"], configuration.inference.name)
    step = (keys.precision, keys.batch_size)
    return (keys.dataset, keys.train_examples, keys.test_examples, *network, *step)


def work(configuration: Configuration) -> float:
    """Return how much a run has to do: epochs over the data that take part in a round."""
    keys = configuration.keys
    share = configuration.sampling.expected_share(max(1, keys.clients))
    return keys.rounds * configuration.workload.expected_epochs(keys.local_epochs) * share


class Estimate:
    """Seconds per unit of work by kind of run; a kind not met yet is taken for an average one."""

    def __init__(self) -> None:
        self._spent: dict[Kind, list[float]] = {}

    def record(self, configuration: Configuration, seconds: float, share: float = 1.0) -> None:
        """Take note of what a run, or a share of it, has taken."""
        spent = self._spent.setdefault(kind(configuration), [0.0, 0.0])
        spent[0] += seconds
        spent[1] += work(configuration) * share

    def left(self, pending: Iterable[tuple[Configuration, float]]) -> float | None:
        """Return the seconds that runs still take.

        Args:
            pending: The configurations of the runs, and what share of each is to be done.

        Returns:
            The seconds, or None as long as nothing is known.
        """
        seconds = sum(spent for spent, _ in self._spent.values())
        units = sum(done for _, done in self._spent.values())
        if not units:
            return None
        rates = {met: spent / done for met, (spent, done) in self._spent.items() if done}
        return sum(
            rates.get(kind(configuration), seconds / units) * work(configuration) * share
            for configuration, share in pending
        )


def duration(seconds: float) -> str:
    """Return a duration in its two largest units.

    Example:
        >>> duration(42), duration(3700), duration(90 * 3600)
        ('42 s', '1 h 1 min', '3 d 18 h')
    """
    left = round(seconds)
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        amount, left = divmod(left, size)
        parts.append((amount, unit))
    first = next((i for i, (amount, _) in enumerate(parts) if amount), len(parts) - 1)
    shown = [f"{amount} {unit}" for amount, unit in parts[first : first + 2] if amount]
    return " ".join(shown) or "0 s"
