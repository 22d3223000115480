"""One run of an engine: whether it can go on, what to do when it cannot, and where it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bfl.errors import RunError

if TYPE_CHECKING:
    from rich.console import Console

    from bfl.posteriors import Posterior

INTERRUPTED = "the run has been interrupted"

OnRound = Callable[[int, Mapping[str, Any], "Posterior"], object]
"""Callback with each round that is over: its number, metrics and posterior."""

_in_progress: list[EngineRun] = []


@dataclass(eq=False)
class EngineRun:
    """One run of an engine; the ServerApp's grid has it, and so has who has started the run.

    The grid raises as soon as the run has been ended, so that nobody waits for replies any longer.

    Attributes:
        console: Shows the rounds; by default that of standard output.
        on_round: Called with the number, the metrics and the posterior of each round that is over.
        verbose: Whether its lines have all numbers.
        advice: What the user can do when the run ends early.
        baselines_follow: Whether the run is compared before the next command is named.
        client_threads: The threads of clients that compute in this process; None: they have their
            own.
    """

    console: Console | None = None
    on_round: OnRound = lambda *_: None
    verbose: bool = False
    advice: str = ""
    client_threads: int | None = None
    baselines_follow: bool = False
    _reason: str = ""

    @property
    def ended(self) -> bool:
        """True if nobody shall wait for replies any longer."""
        return bool(self._reason)

    def end(self, reason: str) -> None:
        """Have everybody who waits for replies stop; the first reason counts."""
        self._reason = self._reason or reason

    def raise_if_ended(self) -> None:
        """Raise RunError, with the reason, when the run has been ended."""
        if self._reason:
            raise RunError(self._reason)

    @contextmanager
    def in_progress(self) -> Iterator[None]:
        """End the run when an exception leaves the block, which may be entered again inside.

        One that interrupts the run gets the advice as a note.
        """
        outermost = self not in _in_progress
        if outermost:
            _in_progress.append(self)
        try:
            yield
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt | SystemExit)
            self.end(INTERRUPTED if interrupted else str(error) or repr(error))
            if interrupted and outermost and self.advice:
                error.add_note(self.advice)
            raise
        finally:
            if outermost:
                _in_progress.remove(self)


def runs_in_progress() -> list[EngineRun]:
    """Return the runs of this process that have begun and not ended."""
    return list(_in_progress)


def run_of(grid: Any) -> EngineRun:
    """Return the run that a grid belongs to; a grid of Flower's has none, and gets a new one."""
    run = getattr(grid, "engine_run", None)
    return run if isinstance(run, EngineRun) else EngineRun()
