"""No defence."""

from __future__ import annotations

from collections.abc import Sequence

from bfl.aggregation.defences.base import Defence, defences
from bfl.posteriors import Posterior


@defences.register("none")
class NoDefence(Defence):
    """Posteriors are pooled as they are sent."""

    @property
    def idle(self) -> bool:
        """True."""
        return True

    def protect(self, posteriors: Sequence[Posterior]) -> list[Posterior]:
        """Return the posteriors."""
        return list(posteriors)
