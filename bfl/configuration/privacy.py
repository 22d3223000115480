"""Privacy of the clients in a configuration as a whole."""

from __future__ import annotations

from bfl.configuration.configuration import Configuration
from bfl.federation.outgoing import is_private
from bfl.federation.privacy.accountant import Mechanism


def says_nothing_measured(configuration: Configuration) -> bool:
    """Return whether clients send no number that they have measured besides their updates."""
    return is_private(configuration.outgoing) or configuration.example_privacy.private


def mechanisms(configuration: Configuration, sums: int = 0) -> tuple[Mechanism, ...]:
    """Return the noised releases of a configuration's clients, those of whole clients first.

    Args:
        sums: For how many rounds of closings' sums ε has room.
    """
    of_updates = [part.mechanism() for part in configuration.outgoing]
    found = (*of_updates, configuration.example_privacy.mechanism(sums))
    return tuple(mechanism for mechanism in found if mechanism)
