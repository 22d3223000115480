"""The entry points: a command can be interrupted before all that it needs has been imported.

A small process runs a study in another one, and starts it anew when that dies in a run. Ray and
TensorFlow can end the process that they are in from C++, at once and without a word. The run in
which that happens is recorded as failed, and the others go on. An interruption is passed on, and
ends all.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType

from bfl.commands.interruption import Interruption
from bfl.engine.processes import descendants, kill
from bfl.engine.watched import Watched, take_up
from bfl.printing import print_anywhere


def bfl() -> int:
    """Run the command ``bfl`` and return its exit status."""
    if sys.argv[1:2] in (["run"], ["study"]):
        _greet()
    if makes_runs(sys.argv[1:]):
        return supervised(lambda: _run("bfl.commands.main"))
    return _run("bfl.commands.main")


def makes_runs(arguments: Sequence[str]) -> bool:
    """Return whether a command is one that makes the runs of a study."""
    return arguments[:1] == ["study"] and arguments[1:2] != ["merge"]


def flower_simulation() -> int:
    """Run the command ``flower-simulation`` and return its exit status."""
    _greet()
    return _run("bfl.commands.flower_simulation")


def _greet() -> None:
    """Say at once, in a terminal, that something happens: what makes runs takes long to import."""
    if sys.stderr.isatty():
        print("bfl is starting", file=sys.stderr)


def _run(module: str) -> int:
    print_anywhere()
    with Interruption() as interruption:
        try:
            main = importlib.import_module(module).main
        except KeyboardInterrupt as error:
            return interruption.over(error)
    return int(main())


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
