"""The best posterior of a run, and early stopping, by the lines of ``rounds.jsonl`` alone."""

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
    """A best round, by a metric of ``rounds.jsonl``."""

    metric: str
    round: int
    value: float


def best_of(rounds: Sequence[Mapping[str, Any]], metric: str) -> Best | None:
    """Return the best round by a metric on the server's images, the first of a tie, if any."""
    name = f"{VALIDATION}{metric}"
    sign = 1.0 if higher_is_better(metric) else -1.0
    found = [
        Best(name, int(entry["round"]), float(entry[name]))
        for entry in rounds
        if entry.get(name) is not None and math.isfinite(entry[name])
    ]
    return max(found, key=lambda best: sign * best.value, default=None)


def out_of_patience(rounds: Sequence[Mapping[str, Any]], metric: str, patience: int) -> bool:
    """Return whether the best round is at least ``patience`` rounds ago; False for 0."""
    if not patience or not rounds:
        return False
    best = best_of(rounds, metric)
    return int(rounds[-1]["round"]) - (best.round if best else 0) >= patience


@dataclass
class BestPosterior:
    """Keeper of a run's best posterior in its folder; its methods raise RunError if it fails.

    ``patience`` rounds without improvement end the run of ``rounds``; 0: they never do.
    """

    folder: RunFolder
    manifest: Manifest
    metric: str
    patience: int
    rounds: int

    def go_on(self, posterior: Posterior) -> None:
        """Reset the best posterior of a resumed run to its records and its last checkpoint.

        The posterior of a dropped round is removed, as the repeated round may be worse.
        """
        rounds, kept = self.folder.rounds(), self._kept()
        if kept is None or kept not in [best_of([entry], self.metric) for entry in rounds]:
            with self.folder.writing(BEST_POSTERIOR) as path:
                path.unlink(missing_ok=True)
        # The server may have been killed after a checkpoint, before it kept the posterior.
        if kept != best_of(rounds, self.metric):
            self.look(posterior)

    def _kept(self) -> Best | None:
        with suppress(DataError):
            return Best(**self.folder.best())
        return None

    def look(self, posterior: Posterior) -> bool:
        """Keep the last round's posterior if it is the best; return whether to stop the run."""
        rounds = self.folder.rounds()  # read once: it takes seconds in a long run of many clients
        best = best_of(rounds, self.metric)
        if best and best.round == rounds[-1]["round"]:
            self.folder.write_posterior(posterior, self.manifest, BEST_POSTERIOR, **vars(best))
        return out_of_patience(rounds, self.metric, self.patience)

    def exhausted(self) -> bool:
        """Return whether to stop the run."""
        return out_of_patience(self.folder.rounds(), self.metric, self.patience)

    def describe(self) -> str:
        """Return a message on the best round and on early stopping."""
        rounds = self.folder.rounds()
        best, made = best_of(rounds, self.metric), int(rounds[-1]["round"]) if rounds else 0
        stopped = made < self.rounds and out_of_patience(rounds, self.metric, self.patience)
        early = f"stopped early, after round {made} of {self.rounds}; " if stopped else ""
        if best is None:
            return f"{early}no round has a finite validation-{self.metric}"
        lost = "" if self._kept() == best else f"; its {BEST_POSTERIOR} is missing"
        return f"{early}best round by {best.metric}: {best.round} ({best.value:.4f}){lost}"
