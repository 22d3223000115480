"""Errors of secure aggregation."""

from __future__ import annotations

from collections.abc import Mapping

from bfl.errors import BflError


class ProtocolError(BflError):
    """A message is not one that the protocol has at this point: nothing is answered.

    Its message says nothing but what the server has sent.
    """

    public = True


class UnusableClientsError(BflError):
    """The masks of some clients cannot be taken off by what they have sent; nothing was unmasked.

    Attributes:
        reasons: Why each cannot take part in the round, by client.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__("; ".join(f"client {c}: {why}" for c, why in sorted(reasons.items())))
        self.reasons = dict(reasons)


class TooFewClientsError(BflError):
    """Fewer clients are left than are needed to take masks off: nothing was unmasked."""
