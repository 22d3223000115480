"""The best posterior of a run so far, and whether to go on waiting for a better one.

Both are functions of the lines of ``rounds.jsonl``, so a run that is resumed goes on as if it had
not been interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bfl.errors import DataError
from bfl.evaluation.metrics import higher_is_better
from bfl.experiments.results.run_folder import BEST_POSTERIOR, RunFolder
from bfl.posteriors import Manifest, Posterior

VALIDATION = "validation-"
"""Prefix of the names of metrics on the server's own images."""


@dataclass(frozen=True)
class Best:
    """The best round of some.

    Attributes:
        metric: By which metric, as rounds have it: ``validation-...``.
    """

    metric: str
    round: int
    value: float


def best_of(rounds: Sequence[Mapping[str, Any]], metric: str) -> Best | None:
    """Return the best of some rounds; of equals the first, and None if none has a finite value.

    Args:
        rounds: Lines of ``rounds.jsonl``.
        metric: The metric's name, which says which way is up.
    """
    name = f"{VALIDATION}{metric}"
    sign = 1.0 if higher_is_better(metric) else -1.0
    found = [
        Best(name, int(entry["round"]), float(entry[name]))
        for entry in rounds
        if entry.get(name) is not None and math.isfinite(entry[name])
    ]
    return max(found, key=lambda best: sign * best.value, default=None)


def out_of_patience(rounds: Sequence[Mapping[str, Any]], metric: str, patience: int) -> bool:
    """Return whether the best round lies ``patience`` rounds or more behind; 0: never."""
    if not patience or not rounds:
        return False
    best = best_of(rounds, metric)
    return int(rounds[-1]["round"]) - (best.round if best else 0) >= patience


@dataclass
class BestPosterior:
    """Keeps a run's best posterior in its folder.

    Attributes:
        patience: How many rounds without a better one end the run; 0: never.
        rounds: How many rounds the run was to have.
    """

    folder: RunFolder
    manifest: Manifest
    metric: str
    patience: int
    rounds: int

    def go_on(self, posterior: Posterior) -> None:
        """Take up a run where its records and its last checkpoint leave it.

        A best posterior of a round that has been dropped is dropped as well: what is made in its
        place may be worse.

        Raises:
            RunError: A file cannot be written or removed.
        """
        rounds, kept = self.folder.rounds(), self._kept()
        if kept is None or kept not in [best_of([entry], self.metric) for entry in rounds]:
            with self.folder.writing(BEST_POSTERIOR) as path:
                path.unlink(missing_ok=True)
        # A run may have been killed between a checkpoint and the look at its posterior.
        if kept != best_of(rounds, self.metric):
            self.look(posterior)

    def _kept(self) -> Best | None:
        """Return of which round the posterior in the folder is; None: of none that can be read."""
        with suppress(DataError):
            return Best(**self.folder.best())
        return None

    def look(self, posterior: Posterior) -> bool:
        """Keep the posterior of the last round if it is the best; return whether to stop.

        Raises:
            RunError: It cannot be written.
        """
        rounds = self.folder.rounds()  # once: in a long run with many clients it takes seconds
        best = best_of(rounds, self.metric)
        if best and best.round == rounds[-1]["round"]:
            self.folder.write_best_posterior(
                posterior, self.manifest, best.metric, best.round, best.value
            )
        return out_of_patience(rounds, self.metric, self.patience)

    def exhausted(self) -> bool:
        """Return whether the run has waited long enough for a better round."""
        return out_of_patience(self.folder.rounds(), self.metric, self.patience)

    def told(self) -> str:
        """Return what a person reads of the best round and of an end before the last one."""
        rounds = self.folder.rounds()
        best = best_of(rounds, self.metric)
        made = int(rounds[-1]["round"]) if rounds else 0
        stopped = out_of_patience(rounds, self.metric, self.patience) and made < self.rounds
        early = f"stopped early, after round {made} of {self.rounds}; " if stopped else ""
        if best is None:
            return f"{early}no round has a finite validation-{self.metric}"
        lost = "" if self._kept() == best else f", of which there is no {BEST_POSTERIOR} any more"
        return f"{early}best round by {best.metric}: {best.round} ({best.value:.4f}){lost}"
