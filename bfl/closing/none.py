"""No closing round."""

from __future__ import annotations

from collections.abc import Mapping

from bfl.closing.base import Closing, Examples, Known, Sums, closings


@closings.register("none")
class NoClosing(Closing):
    """No closing round: the run ends with the pooled posterior."""

    @property
    def rounds(self) -> int:
        """The number of rounds: none."""
        return 0

    def shapes(self, features: int, classes: int) -> Mapping[str, tuple[int, ...]]:
        """Return nothing."""
        return {}

    def measure(self, known: Known, examples: Examples) -> Sums:
        """Return nothing."""
        return {}

    def fold(self, known: Known, sums: Sums) -> Known:
        """Return what was known."""
        return known
