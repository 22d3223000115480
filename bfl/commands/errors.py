"""Exit of a command on an error: one message, no traceback, a telling exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps

from bfl.commands.interruption import Interruption
from bfl.errors import BflError, ConfigurationError, DataError

REFUSED, FAILED = 2, 1


def exits_with_status(command: Callable[[list[str] | None], None]) -> Callable[..., int]:
    """Return a command that returns its exit status.

    0, 2 for a refused input, 1 for a failure, 130 when it has been interrupted (Ctrl-C); a command
    that a signal has interrupted does not return but ends the process, after SIGTERM with 143.
    """

    @wraps(command)
    def run(arguments: list[str] | None = None) -> int:
        with Interruption() as interruption:
            try:
                command(arguments)
            except KeyboardInterrupt as error:
                return interruption.over(error)
            except SystemExit as error:
                if interruption.number:  # of Ray, which sets a handler of its own while it starts
                    return interruption.over(error)
                raise
            except BflError as error:
                if interruption.number:
                    return interruption.over(error)
                if isinstance(error, ConfigurationError | DataError):
                    return _say("refused", error, REFUSED)
                return _say("failed", error, FAILED)
            return 0

    return run


def _say(what: str, error: BflError, status: int) -> int:
    lines = str(error).splitlines()
    text = lines[0] if len(lines) == 1 else "\n  ".join(["", *lines])
    print(f"{what}: {text}", file=sys.stderr)
    return status
