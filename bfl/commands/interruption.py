"""End a command within seconds on SIGINT (Ctrl-C) or SIGTERM.

The first signal raises KeyboardInterrupt in the main thread and ends the runs in progress; further
ones are ignored. What is not over after a few seconds, such as a TensorFlow graph, is cut off:
rounds are saved as they are finished, and a file is there whole or not.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

from psutil import Process

from bfl.engine.processes import descendants, kill
from bfl.engine.run import INTERRUPTED, runs_in_progress

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE = 3.5
"""Seconds that a command has for ending in good order."""


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
        """Wait for a signal, end the runs, and cut off what is not over in time."""
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
        """Print the interruption and its advice, and end the process if a signal has come.

        Returns:
            The exit status, where no signal has come.
        """
        advice = getattr(error, "__notes__", [])
        if self.number:
            self.cut_off(advice)
        _say(advice)
        return self.status

    def cut_off(self, advice: list[str]) -> None:
        """End this process and all that it has started, and wait for no thread or library."""
        with self._ending:
            # Whoever reads what is printed may have stopped.
            words = [line for line in advice if line]
            speaker = threading.Thread(target=_last_words, args=[words], daemon=True)
            speaker.start()
            speaker.join(0.5)
            kill([*self._family, *descendants()])
            os._exit(self.status)


def _last_words(advice: list[str]) -> None:
    with suppress(Exception):
        _say(advice)
    logging.shutdown()


def _say(advice: list[str]) -> None:
    if sys.stdout.isatty():
        print("\x1b[?25h", end="")  # shows the cursor
    sys.stdout.flush()
    print("\n  ".join(["interrupted", *advice]), file=sys.stderr, flush=True)
