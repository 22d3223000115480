"""Whether the engine that runs the clients is alive: who waits for replies has to know."""

from __future__ import annotations

from bfl.errors import RunError

_death: list[str] = []


def declare_dead(reason: str) -> None:
    """Have everybody who waits for the engine stop waiting, with a reason."""
    _death.append(reason)


def declare_alive() -> None:
    """Forget earlier deaths: a new engine has been started in this process."""
    _death.clear()


def raise_if_dead() -> None:
    """Raise when the engine has died.

    Raises:
        RunError: It has; the message says why.
    """
    if _death:
        raise RunError(f"the simulation engine has died: {_death[0]}")
