"""Lines that say what a command is doing, whenever it would be silent for three seconds.

One thread prints it, from the moment that a command is entered; in a terminal the bar of the rounds
shows it as well. Whoever begins something that may take seconds calls ``doing``, and ``detail`` as
it goes on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

SILENCE = 2.4
"""Seconds without output after which a line is printed."""

LONG, LONG_SILENCE = 60.0, 30.0
"""Seconds after which nothing has changed for long, and those between lines from then on: a log of
hours stays readable."""

_step = _detail = ""
_changed = _spoken = time.monotonic()
_shown = False


def doing(step: str) -> None:
    """Name what is done from now on, until the next call."""
    global _step, _detail, _changed
    _step, _detail, _changed = step, "", time.monotonic()


def detail(text: str) -> None:
    """Say how far the present step is."""
    global _detail, _changed
    if text != _detail:
        _detail, _changed = text, time.monotonic()


def described() -> str:
    """Return the present step and how far it is."""
    return ": ".join(filter(None, (_step, _detail)))


def spoke() -> None:
    """Take note that something has been printed."""
    global _spoken
    _spoken = time.monotonic()


@contextmanager
def shown(began: float | None = None) -> Iterator[None]:
    """Print lines inside while nobody else prints any; an outer block does it already.

    Args:
        began: What their seconds count from, by the monotonic clock; None: now.
    """
    global _shown
    if _shown:
        yield
        return
    _shown, over = True, Event()
    start = time.monotonic() if began is None else began
    thread = Thread(target=_speak, args=[over, start], daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(1.0)
        _shown = False


def _speak(over: Event, start: float) -> None:
    while not over.wait(0.2):
        now, text = time.monotonic(), described()
        if text and now - _spoken >= (LONG_SILENCE if now - _changed > LONG else SILENCE):
            print(f"[{now - start:6.1f} s] {text}", file=sys.stdout, flush=True)
            spoke()
