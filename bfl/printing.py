"""Standard output and error: no character and no reader that has gone ends a run.

TensorFlow's banner, which no setting of its own turns off, is kept away; and a command says what it
is doing whenever it would be silent for three seconds: on a terminal in one line that changes, and
elsewhere in a line for each state.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_BANNER = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog|"
    rb"I0000 .*(oneDNN custom operations|Could not find cuda drivers|cpu_feature_guard)|"
    rb"E0000 .*failed call to cuInit|"
    rb"To enable the following instructions"
)


@contextmanager
def quiet_start() -> Iterator[None]:
    """Leave TensorFlow's banner, which is written by C++, out of standard error inside.

    All other lines are written as soon as the block ends.
    """
    try:
        descriptor = sys.__stderr__.fileno() if sys.__stderr__ else 2
        kept = os.dup(descriptor)
    except (OSError, ValueError):  # no standard error to keep quiet
        yield
        return
    with tempfile.TemporaryFile() as aside:
        os.dup2(aside.fileno(), descriptor)
        try:
            yield
        finally:
            os.dup2(kept, descriptor)
            os.close(kept)
            aside.seek(0)
            lines = [line for line in aside.readlines() if not _BANNER.match(line)]
            os.write(descriptor, b"".join(lines))


class _Lasting(io.TextIOWrapper):
    """A text stream that replaces what its encoding lacks, and goes on where nobody reads."""

    def write(self, text: str) -> int:
        _erase_waiting_line()
        self._unless_gone(lambda: super(_Lasting, self).write(text))
        spoke()
        return len(text)

    def flush(self) -> None:
        self._unless_gone(super().flush)

    def _unless_gone(self, act: Callable[[], Any]) -> None:
        try:
            act()
        except OSError:  # a closed pipe, a full disk, a terminal that has hung up
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)


def console_of_lines() -> Console:
    """Return a console that breaks lines between words in a terminal, and nowhere else."""
    from rich.console import Console

    return Console(highlight=False, markup=False, soft_wrap=not sys.stdout.isatty())


def say(text: str) -> None:
    """Print a line for people."""
    console_of_lines().print(text)


def print_anywhere() -> None:
    """Have all that is printed from here on end no process, whatever takes it.

    Characters that an encoding lacks are replaced, here and in processes that this one starts.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed when the process began
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        # Else somebody captures it: by their own stream or, as Flower's server, a function of it.
        elif type(stream) is io.TextIOWrapper and "write" not in vars(stream):
            buffering = stream.line_buffering
            setattr(sys, name, _Lasting(stream.buffer, stream.encoding, "replace", None, buffering))
            if "utf" not in stream.encoding.lower():
                os.environ["PYTHONIOENCODING"] = f"{stream.encoding}:replace"


SILENCE = 2.4
"""Seconds without output after which a line says what a command is doing."""

REPEATED = 30.0
"""Seconds after which the same step has a line again where it is no terminal's, rarer with time."""

WAITS = " ..."
"""The end of such a line."""

_ERASE_LINE = "\x1b[2K"

_step = _detail = ""
_began = _changed = _spoken = time.monotonic()
_shown = _waiting_line = False


def stamp() -> str:
    """Return the seconds since the command began, as they stand before a line."""
    return f"[{time.monotonic() - _began:6.1f} s]"


def tell(text: str) -> None:
    """Print a line for people, behind those seconds."""
    say(f"{stamp()} {text}")


def doing(step: str) -> None:
    """Name what is done from now on, until the next call: what may take seconds."""
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
        began: What all lines' seconds count from, by the monotonic clock; None: now.
    """
    global _shown, _began
    if _shown:
        yield
        return
    _shown, over = True, Event()
    _began = time.monotonic() if began is None else began
    thread = Thread(target=_speak, args=[over], daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(1.0)
        _shown = False


def _speak(over: Event) -> None:
    global _waiting_line
    told = ""
    while not over.wait(0.2):
        now, text, stream = time.monotonic(), described(), sys.stdout
        silence = now - _spoken
        if not text:
            continue
        if stream.isatty():
            if silence >= (1.0 if _waiting_line else SILENCE):
                from rich.text import Text

                line = Text(f"{stamp()} {text}{WAITS}")
                line.truncate(shutil.get_terminal_size().columns - 1, overflow="ellipsis")
                print(line.plain, end="\r", file=stream, flush=True)
                _waiting_line = True
        elif silence >= (SILENCE if _step != told else max(REPEATED, (now - _changed) / 4)):
            print(f"{stamp()} {text}{WAITS}", file=stream, flush=True)
            spoke()
            told = _step
    _erase_waiting_line()


def _erase_waiting_line() -> None:
    global _waiting_line
    if _waiting_line:
        _waiting_line = False
        print(end=_ERASE_LINE, flush=True)
