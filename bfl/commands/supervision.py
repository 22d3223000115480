"""A small process that runs a study in another one, and starts it anew when that dies in a run.

Ray and TensorFlow can end the process that they are in from C++, at once and without a word. The
run in which that happens is recorded as failed, and the others go on. An interruption is passed on,
and ends all.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any

from bfl.engine.processes import Process, descendants, kill
from bfl.engine.run import INTERRUPTED, runs_in_progress
from bfl.engine.watched import Watched, take_up

SIGNALS = (signal.SIGINT, signal.SIGTERM)

GRACE = 3.5
"""Seconds that a command has for ending in good order."""

SAYING = 0.5
"""Seconds for saying so."""

SHOW_CURSOR = "\x1b[?25h"


class Interruption:
    """Ends a command on SIGINT and SIGTERM, while it is entered; in the main thread only.

    Attributes:
        number: The signal that has come; 0: none yet.
    """

    def __init__(self) -> None:
        self.number = 0
        self._raised = False
        self._handlers: dict[int, Any] = {}
        self._family: list[Process] = []
        self._ending = threading.Lock()
        self._wakeup = self._wakeup_before = -1

    def __enter__(self) -> Interruption:
        if threading.current_thread() is not threading.main_thread():
            return self
        # Python calls handlers between two of the main thread's instructions, which may take long
        # in coming; the number of the signal is in the pipe at once.
        looked_at, self._wakeup = os.pipe()
        os.set_blocking(self._wakeup, False)
        self._wakeup_before = signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=[looked_at], daemon=True).start()
        for number in SIGNALS:
            before = signal.getsignal(number)
            if before != signal.SIG_IGN:  # as in what a shell runs in the background
                self._handlers[number] = before
                signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._handlers.items():
            signal.signal(number, before if before is not None else signal.SIG_DFL)
        if self._wakeup >= 0:
            signal.set_wakeup_fd(self._wakeup_before)
            os.close(self._wakeup)

    @property
    def status(self) -> int:
        """The exit status of a command that has been interrupted."""
        return 128 + (self.number or signal.SIGINT)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.number = self.number or number
        if not self._raised:
            self._raised = True
            raise KeyboardInterrupt

    def _watch(self, looked_at: int) -> None:
        """Wait for a signal, have the runs ended, and cut off what is not over in time."""
        number = 0
        while number not in SIGNALS:
            read = os.read(looked_at, 1)
            if not read:  # the command is over
                os.close(looked_at)
                return
            number = read[0]
        self.number = self.number or number
        for run in runs_in_progress():
            run.end(INTERRUPTED)
        self._family = descendants()
        threading.Event().wait(GRACE)
        self.cut_off([run.advice for run in runs_in_progress()])

    def over(self, error: BaseException) -> int:
        """Say that the command has been interrupted, and end the process if a signal has done it.

        Returns:
            The exit status, where no signal has come: then the caller has raised KeyboardInterrupt.
        """
        advice = getattr(error, "__notes__", [])
        if self.number:
            self.cut_off(advice)
        _say(advice)
        return self.status

    def cut_off(self, advice: list[str]) -> None:
        """End this process and all that it has started; does not return.

        Neither waits for threads nor lets libraries end in good order, which may take for ever.
        """
        with self._ending:
            # Whoever reads what is printed may have stopped.
            lines = [line for line in advice if line]
            speaker = threading.Thread(target=_last_words, args=[lines], daemon=True)
            speaker.start()
            speaker.join(SAYING)
            kill([*self._family, *descendants()])
            os._exit(self.status)


def _last_words(advice: list[str]) -> None:
    with suppress(Exception):
        _say(advice)
    logging.shutdown()


def _say(advice: list[str]) -> None:
    if sys.stdout.isatty():
        print(SHOW_CURSOR, end="")
    sys.stdout.flush()
    print("\n  ".join(["interrupted", *advice]), file=sys.stderr, flush=True)


PATIENCE = 4.5
"""Seconds that the study's process has to end once it is told to: more than it takes itself."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_INTERRUPTED = {128 + number for number in _SIGNALS}
_SET_CHILD_SUBREAPER, _SET_PARENT_DEATH_SIGNAL = 36, 1  # of Linux's prctl


def supervised(command: Callable[[], int]) -> int:
    """Run a study's command in a process of its own, as often as that dies; return the status.

    Where there is no fork (Windows), or signals are not this thread's, it is run right here.
    """
    if not hasattr(os, "fork"):
        return command()
    return _Supervisor(command).run()


class _Supervisor:
    """See ``supervised``; its only state is the signal that has come."""

    def __init__(self, command: Callable[[], int]) -> None:
        self._command = command
        self._number = 0
        self._child = 0

    def run(self) -> int:
        """Return the status of the command."""
        _prctl(_SET_CHILD_SUBREAPER, 1)  # so that what an ended process leaves is found
        handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        watched = Watched()
        while True:
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
            self._child = os.fork()
            if not self._child:
                _as_child(handlers)
                take_up(watched)
                try:
                    return self._command()
                finally:
                    watched.over()
            for number, before in handlers.items():
                if before != signal.SIG_IGN:  # as in what a shell runs in the background
                    signal.signal(number, self._pass_on)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            code = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
            signal.setitimer(signal.ITIMER_REAL, 0)
            if watched.is_over and not self._number:
                return code if code >= 0 else 128 - code
            kill(descendants())
            _reap()
            if self._number:
                return 128 + self._number
            if code in _INTERRUPTED:
                return code
            if not watched.run or watched.run in watched.died:
                print(f"failed: the study's process has died ({_cause(code)})", file=sys.stderr)
                return 1
            watched.died[watched.run] = f"the run's process has died ({_cause(code)})"
            print(f"{watched.run}: {watched.died[watched.run]}; going on", flush=True)
            watched.ends()

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        """Have the study's process end, and end it should it not."""
        if not self._number:
            self._number = number
            signal.signal(signal.SIGALRM, _cut_off)
            signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        with suppress(ProcessLookupError):
            os.kill(self._child, number)


def _cut_off(number: int, frame: FrameType | None) -> None:
    kill(descendants())


def _as_child(handlers: Mapping[signal.Signals, object]) -> None:
    """Have signals do what they did before, and this process end with its parent."""
    for number, before in handlers.items():
        signal.signal(number, before)  # type: ignore[arg-type]
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _cause(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"status {code}"


def _reap() -> None:
    """Take note of the end of all processes that have become this one's."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _prctl(option: int, value: int) -> None:
    """Set a property of this process, where the system has it (Linux)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
