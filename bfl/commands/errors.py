"""How a command ends when something is wrong: one message, no traceback, a telling exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps

from bfl.errors import BflError, ConfigurationError, DataError

REFUSED, FAILED, INTERRUPTED = 2, 1, 130


def exits_with_status(command: Callable[[list[str] | None], None]) -> Callable[..., int]:
    """Return a command that returns its exit status: 0, 2 for a refused input, 1 for a failure."""

    @wraps(command)
    def run(arguments: list[str] | None = None) -> int:
        try:
            command(arguments)
        except (ConfigurationError, DataError) as error:
            return _say("refused", error, REFUSED)
        except BflError as error:
            return _say("failed", error, FAILED)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return INTERRUPTED
        return 0

    return run


def _say(what: str, error: BflError, status: int) -> int:
    lines = str(error).splitlines()
    text = lines[0] if len(lines) == 1 else "\n  ".join(["", *lines])
    print(f"{what}: {text}", file=sys.stderr)
    return status
