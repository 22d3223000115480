"""Whether the engine that runs the clients is alive: who waits for replies has to know."""

from __future__ import annotations

from bfl.errors import RunError

_death: list[str] = []
_advice: list[str] = []


def declare_dead(reason: str) -> None:
    """Have everybody who waits for the engine stop waiting, with a reason."""
    _death.append(reason)


def declare_alive() -> None:
    """Forget earlier deaths and advice: a new engine has been started in this process."""
    _death.clear()
    _advice.clear()


def advise(what_to_do: str) -> None:
    """Say what the user can do should the engine die from now on."""
    _advice[:] = [what_to_do]


def obituary(reason: str) -> str:
    """Return the message that the engine has died, why, and what to do."""
    return "\n".join([f"the simulation engine has died: {reason}", *_advice])


def raise_if_dead() -> None:
    """Raise when the engine has died.

    Raises:
        RunError: It has; the message says why.
    """
    if _death:
        raise RunError(f"the simulation engine has died: {_death[0]}")
