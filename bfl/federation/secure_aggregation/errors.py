"""What can go wrong with secure aggregation."""

from __future__ import annotations

from bfl.errors import BflError


class ProtocolError(BflError):
    """A message is not one that the protocol has at this point: nothing is answered.

    Its message says nothing but what the server has sent.
    """

    public = True


class TooFewClientsError(BflError):
    """Fewer clients are left than are needed to take masks off: nothing was unmasked."""
