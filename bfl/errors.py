"""Errors for people: what was given, where, what is allowed, and the nearest valid spelling."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar


class BflError(Exception):
    """Base of every error that this package raises on purpose.

    Attributes:
        public: Whether its message holds no data, paths or settings of the machine that raises it.
            A client sends no other one to the server.
    """

    public = False


class ConfigurationError(BflError):
    """A setting is unknown, out of range, or does not go with another one: exit status 2."""


class DataError(BflError):
    """A data set is missing, unreadable, or not what its format promises."""


class PosteriorError(BflError):
    """A posterior does not fit its manifest, is not finite, or has a variance of 0 or less."""


class NotFiniteError(BflError, ValueError):
    """A model's logits are not finite, as finite weights may be so large that they overflow."""

    def __init__(self, bad: int, of: int) -> None:
        super().__init__(bad, of)
        self.bad = bad
        self.of = of

    def __str__(self) -> str:
        return f"{self.bad} of {self.of} logits are not finite"


class RunError(BflError):
    """A federation could not go on after it had started."""


class LostStateError(RunError):
    """Loss of a client's state, without which its next result would be another one."""


class SharedFolderError(LostStateError):
    """The hosts of a simulation do not share the run's folder."""


E = TypeVar("E", bound=BflError)


def public(error: E) -> E:
    """Return an error as one whose message holds nothing of the machine that raises it."""
    error.public = True
    return error


def nearest(given: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed spelling nearest to ``given``, or None when nothing is near."""
    if len(given) > 200:  # no misspelling
        return None
    lowered = {name.lower(): name for name in allowed}
    matches = difflib.get_close_matches(given.lower(), lowered, n=1, cutoff=0.6)
    return lowered[matches[0]] if matches else None


def unknown_name(what: str, given: str, allowed: Iterable[str], *, listed: str = "") -> str:
    """Return the message for a name that is not known: the nearest spelling, then all of them.

    Args:
        listed: The command that lists them, in place of more than 20 where one is near.

    Example:
        >>> unknown_name("strategy", "conflaton", ["conflation", "linear-pool"])
        "unknown strategy 'conflaton'; did you mean 'conflation'? allowed: conflation, linear-pool"
    """
    choices = sorted(allowed)
    guess = nearest(given, choices)
    hint = f"; did you mean '{guess}'?" if guess else ";"
    names = f"see {listed}" if guess and listed and len(choices) > 20 else ", ".join(choices)
    return f"unknown {what} '{given}'{hint} allowed: {names}"


class ProtocolError(BflError):
    """A message is not one that the protocol has at this point: nothing is answered."""

    public = True


class UnusableClientsError(BflError):
    """The masks of some clients cannot be taken off; ``reasons`` says why, by client."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__("; ".join(f"client {c}: {why}" for c, why in sorted(reasons.items())))
        self.reasons = dict(reasons)


class TooFewClientsError(BflError):
    """Fewer clients are left than are needed to take masks off: nothing was unmasked."""
